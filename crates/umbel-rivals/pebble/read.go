// Reads through the C interface. Results are copied into the caller's memory: to return a value
// that Pebble lends would take a second call into Go, which takes longer.
package main

/*
#include <stdint.h>
*/
import "C"

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// iterator is an iterator that its caller keeps.
type iterator struct {
	iter *pebble.Iterator
	// Whether the entry at the iterator's position has not been copied to the caller yet.
	pending bool
}

// copied copies a value to the caller if it fits. Its length is returned in any case.
func copied(value []byte, buffer *C.uint8_t, capacity C.size_t, length *C.size_t) {
	*length = C.size_t(len(value))
	if len(value) <= int(capacity) {
		copy(bytesAt(buffer, capacity), value)
	}
}

// Looks up a key. Returns 1 if it is present, else 0; its value is copied if it fits.
//
//export umbel_pebble_get
func umbel_pebble_get(
	number C.int32_t,
	key *C.uint8_t,
	keyLength C.size_t,
	buffer *C.uint8_t,
	capacity C.size_t,
	length *C.size_t,
	failure **C.char,
) C.int32_t {
	value, closer, err := stores.get(number).db.Get(bytesAt(key, keyLength))
	if err == pebble.ErrNotFound {
		return 0
	}
	if err != nil {
		return failed(err, failure)
	}
	copied(value, buffer, capacity, length)
	if err := closer.Close(); err != nil {
		return failed(err, failure)
	}
	return 1
}

// Makes an iterator over the present state that probes the filters of every level. Returns its
// number.
//
//export umbel_pebble_iterator
func umbel_pebble_iterator(number C.int32_t, failure **C.char) C.int32_t {
	iter, err := stores.get(number).db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return failed(err, failure)
	}
	place, err := iterators.put(&iterator{iter: iter})
	if err != nil {
		iter.Close()
		return failed(err, failure)
	}
	return place
}

//export umbel_pebble_iterator_close
func umbel_pebble_iterator_close(number C.int32_t, failure **C.char) C.int32_t {
	return failed(iterators.take(number).iter.Close(), failure)
}

// Does the same as umbel_pebble_get, by an iterator that the caller keeps.
//
//export umbel_pebble_find
func umbel_pebble_find(
	number C.int32_t,
	key *C.uint8_t,
	keyLength C.size_t,
	buffer *C.uint8_t,
	capacity C.size_t,
	length *C.size_t,
	failure **C.char,
) C.int32_t {
	iter := iterators.get(number).iter
	// A key's prefix is the whole key here, so the entry found is that of the key itself.
	if !iter.SeekPrefixGE(bytesAt(key, keyLength)) {
		return failed(iter.Error(), failure)
	}
	value, err := iter.ValueAndErr()
	if err != nil {
		return failed(err, failure)
	}
	copied(value, buffer, capacity, length)
	return 1
}

// Seeks to the first key not less than the given one, by an iterator made for it. Copies up to the
// given number of entries as umbel_pebble_walk does. If they do not all fit, the number of bytes
// used is larger than the buffer.
//
//export umbel_pebble_seek
func umbel_pebble_seek(
	number C.int32_t,
	key *C.uint8_t,
	keyLength C.size_t,
	entries C.uint64_t,
	buffer *C.uint8_t,
	capacity C.size_t,
	used *C.size_t,
	failure **C.char,
) C.int64_t {
	iter, err := stores.get(number).db.NewIter(nil)
	if err != nil {
		return C.int64_t(failed(err, failure))
	}
	it := iterator{iter: iter, pending: iter.SeekGE(bytesAt(key, keyLength))}
	count, filled := it.fill(uint64(entries), bytesAt(buffer, capacity))
	*used = C.size_t(filled)
	if it.pending {
		*used = capacity + 1
	}
	if err := iter.Close(); err != nil {
		return C.int64_t(failed(err, failure))
	}
	return C.int64_t(count)
}

// Copies up to the given number of entries, from the given key on, or from the iterator's position
// without a key. Each entry is the length of its key and that of its value, in 4 bytes each, little
// end first, and then both. Returns their number; those that do not fit come with the next call. If
// the first one does not fit, the number of bytes used is the number it needs.
//
//export umbel_pebble_walk
func umbel_pebble_walk(
	number C.int32_t,
	key *C.uint8_t,
	keyLength C.size_t,
	entries C.uint64_t,
	buffer *C.uint8_t,
	capacity C.size_t,
	used *C.size_t,
	failure **C.char,
) C.int64_t {
	it := iterators.get(number)
	if key != nil {
		it.pending = it.iter.SeekGE(bytesAt(key, keyLength))
	}
	count, filled := it.fill(uint64(entries), bytesAt(buffer, capacity))
	*used = C.size_t(filled)
	if err := it.iter.Error(); err != nil {
		return C.int64_t(failed(err, failure))
	}
	return C.int64_t(count)
}

// fill copies entries, and returns their number and the bytes they take.
func (it *iterator) fill(entries uint64, buffer []byte) (uint64, int) {
	count, used := uint64(0), 0
	for ; count < entries; count++ {
		if !it.pending && !(it.iter.Valid() && it.iter.Next()) {
			break
		}
		key, value := it.iter.Key(), it.iter.Value()
		bytes := 8 + len(key) + len(value)
		it.pending = used+bytes > len(buffer)
		if it.pending {
			if count == 0 {
				used = bytes
			}
			break
		}
		binary.LittleEndian.PutUint32(buffer[used:], uint32(len(key)))
		binary.LittleEndian.PutUint32(buffer[used+4:], uint32(len(value)))
		copy(buffer[used+8:], key)
		copy(buffer[used+8+len(key):], value)
		used += bytes
	}
	return count, used
}
