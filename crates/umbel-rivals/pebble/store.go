// Package main offers Pebble behind a narrow C interface, so that a program in another language can
// measure it. Every function returns -1 on failure, with the cause in a string that the caller
// frees.
package main

/*
#include <stdint.h>
#include <stdlib.h>
*/
import "C"

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"github.com/cockroachdb/pebble/v2"
)

// store is an open store.
type store struct {
	db       *pebble.DB
	snapshot *pebble.Snapshot
}

// table maps numbers to objects for a caller: Go's pointers must not be kept outside of Go.
type table[T any] struct {
	places [1024]atomic.Pointer[T]
}

var stores table[store]
var iterators table[iterator]

func (t *table[T]) put(value *T) (C.int32_t, error) {
	for i := range t.places {
		if t.places[i].CompareAndSwap(nil, value) {
			return C.int32_t(i), nil
		}
	}
	return -1, errors.New("too much is open at once")
}

func (t *table[T]) get(number C.int32_t) *T  { return t.places[number].Load() }
func (t *table[T]) take(number C.int32_t) *T { return t.places[number].Swap(nil) }

// bytesAt views memory of the caller, which is valid during the caller's call.
func bytesAt(start *C.uint8_t, length C.size_t) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(start)), int(length))
}

// failed passes an error to the caller. Returns -1 for an error, else 0.
func failed(err error, failure **C.char) C.int32_t {
	if err == nil {
		return 0
	}
	*failure = C.CString(err.Error())
	return -1
}

// Opens or creates a store in a folder. Returns its number.
//
//export umbel_pebble_open
func umbel_pebble_open(
	folder *C.char,
	cacheBytes C.uint64_t,
	memtableBytes C.uint64_t,
	bloomBits C.int32_t,
	failure **C.char,
) C.int32_t {
	tuneCollector(int64(cacheBytes))
	runSettings := settings{int64(cacheBytes), uint64(memtableBytes), int(bloomBits)}
	db, err := pebble.Open(C.GoString(folder), options(runSettings))
	if err != nil {
		return failed(err, failure)
	}
	number, err := stores.put(&store{db: db})
	if err != nil {
		return failed(errors.Join(err, db.Close()), failure)
	}
	return number
}

//export umbel_pebble_close
func umbel_pebble_close(number C.int32_t, failure **C.char) C.int32_t {
	s := stores.take(number)
	var err error
	if s.snapshot != nil {
		err = s.snapshot.Close()
	}
	return failed(errors.Join(err, s.db.Close()), failure)
}

// Puts an entry, or deletes the key if there is no value.
//
//export umbel_pebble_write
func umbel_pebble_write(
	number C.int32_t,
	key *C.uint8_t,
	keyLength C.size_t,
	value *C.uint8_t,
	valueLength C.size_t,
	synced C.int32_t,
	failure **C.char,
) C.int32_t {
	db, how := stores.get(number).db, pebble.NoSync
	if synced != 0 {
		how = pebble.Sync
	}
	if value == nil {
		return failed(db.Delete(bytesAt(key, keyLength), how), failure)
	}
	return failed(db.Set(bytesAt(key, keyLength), bytesAt(value, valueLength), how), failure)
}

// Commits many writes as one batch. Each write is the length of its key and the length of its
// value, and then their bytes. Lengths are 32 bits in the machine's byte order. A length of the
// value with all bits set deletes the key.
//
//export umbel_pebble_write_batch
func umbel_pebble_write_batch(
	number C.int32_t,
	writes *C.uint8_t,
	length C.size_t,
	failure **C.char,
) C.int32_t {
	batch := stores.get(number).db.NewBatch()
	err := fill(batch, bytesAt(writes, length))
	if err == nil {
		err = batch.Commit(pebble.NoSync)
	}
	return failed(errors.Join(err, batch.Close()), failure)
}

func fill(batch *pebble.Batch, writes []byte) error {
	for len(writes) > 0 {
		keyLength := binary.NativeEndian.Uint32(writes)
		valueLength := binary.NativeEndian.Uint32(writes[4:])
		key, rest := writes[8:8+keyLength], writes[8+keyLength:]
		if valueLength == math.MaxUint32 {
			if err := batch.Delete(key, nil); err != nil {
				return err
			}
			writes = rest
			continue
		}
		if err := batch.Set(key, rest[:valueLength], nil); err != nil {
			return err
		}
		writes = rest[valueLength:]
	}
	return nil
}

//export umbel_pebble_flush
func umbel_pebble_flush(number C.int32_t, failure **C.char) C.int32_t {
	return failed(stores.get(number).db.Flush(), failure)
}

// Compacts everything into the last level.
//
//export umbel_pebble_compact
func umbel_pebble_compact(number C.int32_t, failure **C.char) C.int32_t {
	return failed(compact(stores.get(number).db), failure)
}

func compact(db *pebble.DB) error {
	last, err := lastKey(db)
	if err != nil || last == nil {
		return err
	}
	return db.Compact(context.Background(), []byte{}, append(last, 0), true)
}

// lastKey returns the last key, nil in an empty store.
func lastKey(db *pebble.DB) ([]byte, error) {
	iter, err := db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	var last []byte
	if iter.Last() {
		last = append([]byte{}, iter.Key()...)
	}
	return last, iter.Close()
}

// Replaces the snapshot that is held by one of the present state, or releases it.
//
//export umbel_pebble_snapshot
func umbel_pebble_snapshot(number C.int32_t, hold C.int32_t, failure **C.char) C.int32_t {
	s := stores.get(number)
	var err error
	if s.snapshot != nil {
		err = s.snapshot.Close()
		s.snapshot = nil
	}
	if hold != 0 {
		s.snapshot = s.db.NewSnapshot()
	}
	return failed(err, failure)
}

// Fills in the metrics of the store since it was opened, in this order: flushes and compactions,
// those running now, obsolete tables that wait for deletion, blocks loaded. Then filter probes,
// filter probes that did not pass, tables, and tables whose entries are not counted yet.
//
//export umbel_pebble_metrics
func umbel_pebble_metrics(number C.int32_t, figures *C.uint64_t) {
	m := stores.get(number).db.Metrics()
	var tables int64
	for i := range m.Levels {
		tables += m.Levels[i].TablesCount
	}
	all := unsafe.Slice((*uint64)(unsafe.Pointer(figures)), 8)
	all[0] = uint64(m.Flush.Count + m.Compact.Count)
	all[1] = uint64(m.Flush.NumInProgress + m.Compact.NumInProgress)
	all[2] = uint64(max(m.Table.ObsoleteCount, 0))
	all[3] = uint64(m.BlockCache.Misses)
	all[4] = uint64(m.Filter.Hits + m.Filter.Misses)
	all[5] = uint64(m.Filter.Hits)
	all[6] = uint64(tables)
	all[7] = uint64(max(m.Table.PendingStatsCollectionCount, 0))
	if !m.Table.InitialStatsCollectionComplete {
		all[7]++
	}
}

// Returns the versions of Pebble and of Go, in a string that the caller frees.
//
//export umbel_pebble_version
func umbel_pebble_version() *C.char {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/cockroachdb/pebble/v2" {
				version = module.Version
			}
		}
	}
	return C.CString(version + ", " + runtime.Version())
}

// Returns the options for these settings in words, in a string that the caller frees.
//
//export umbel_pebble_settings
func umbel_pebble_settings(
	cacheBytes C.uint64_t,
	memtableBytes C.uint64_t,
	bloomBits C.int32_t,
) *C.char {
	runSettings := settings{int64(cacheBytes), uint64(memtableBytes), int(bloomBits)}
	return C.CString(inWords(options(runSettings)))
}

//export umbel_pebble_free
func umbel_pebble_free(text *C.char) { C.free(unsafe.Pointer(text)) }

func main() {}
