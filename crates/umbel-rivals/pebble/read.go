// Reading through the C interface. What is found is copied into the caller's memory: a value that
// Pebble lends would have to be given back by a second call into Go, which takes longer.
package main

/*
#include <stdint.h>
*/
import "C"

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// iterator is one that its caller keeps.
type iterator struct {
	iter *pebble.Iterator
	// Whether the entry at which it stands was not handed over yet.
	pending bool
}

// copied hands a value over, where there is room for it. Its length is told in any case.
func copied(value []byte, buffer *C.uint8_t, capacity C.size_t, length *C.size_t) {
	*length = C.size_t(len(value))
	if len(value) <= int(capacity) {
		copy(bytesAt(buffer, capacity), value)
	}
}

// Looks up a key. Returns 1 where it is there, else 0; its value is copied if it fits.
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

// Makes an iterator over the present state that asks the filters of every level. Returns its
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

// The same as umbel_pebble_get, by an iterator that is kept.
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
	// A key's prefix is the whole key here, so that what is found is the key itself.
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

// Goes to the first key not less than the one that is given, and hands over up to so many entries
// as umbel_pebble_walk does, by an iterator made for it. Where there is no room for them all, more
// bytes are told as used than there are.
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

// Hands over up to so many entries: from the key on that is given, or from where the iterator
// stands where none is. Each is the length of its key and that of its value in 4 bytes, little end
// first, and then both. Returns how many were; those that do not fit come with the next call. Where
// there is no room for the first one, the bytes it takes are told as used.
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

// fill returns how many entries it has copied and the bytes they take.
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
