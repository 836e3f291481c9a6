// Pebble behind a narrow C interface, so that a program that is not Go's can measure it. Every
// function answers -1 where it failed, and says why in a string that the caller frees.
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

// table keeps what a caller has a number for: Go's memory must not be named outside.
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

// bytesAt are the caller's, for as long as its call takes.
func bytesAt(start *C.uint8_t, length C.size_t) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(start)), int(length))
}

// failed hands an error over. Returns -1 where there is one, else 0.
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
	told := settings{int64(cacheBytes), uint64(memtableBytes), int(bloomBits)}
	db, err := pebble.Open(C.GoString(folder), options(told))
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

// Puts an entry, or deletes the key where there is no value.
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

// Commits many writes as one. Each is the lengths of its key and of its value, 32 bits each as the
// machine has them, the second with all bits set where the key is deleted, and then their bytes.
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

// lastKey is nil where there is none.
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

// Holds a snapshot of the present state in place of the one that was held, or holds none.
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

// Fills in what the store has counted since it was opened: flushes and compactions, how many of
// them there are now, tables that wait for their deletion, blocks that had to be loaded, filters
// asked, filters that said no, tables, and tables of which it does not know yet what they hold.
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

// Returns what a store is opened with that is told this, in a string that the caller frees.
//
//export umbel_pebble_settings
func umbel_pebble_settings(
	cacheBytes C.uint64_t,
	memtableBytes C.uint64_t,
	bloomBits C.int32_t,
) *C.char {
	told := settings{int64(cacheBytes), uint64(memtableBytes), int(bloomBits)}
	return C.CString(inWords(options(told)))
}

//export umbel_pebble_free
func umbel_pebble_free(text *C.char) { C.free(unsafe.Pointer(text)) }

func main() {}
