// The options of Pebble and of Go's garbage collector: CockroachDB's, wherever they do not depend
// on its own keys.
package main

import (
	"fmt"
	"log"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

// settings are those that all engines share.
type settings struct {
	cacheBytes    int64
	memtableBytes uint64
	bloomBits     int
}

func options(s settings) *pebble.Options {
	opts := &pebble.Options{
		CacheSize:                   s.cacheBytes,
		CompactionConcurrencyRange:  func() (int, int) { return 1, compactionsMost() },
		FormatMajorVersion:          pebble.FormatNewest,
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       1000,
		LBaseMaxBytes:               64 << 20,
		Logger:                      quiet{},
		MaxOpenFiles:                16384,
		MemTableSize:                s.memtableBytes,
		MemTableStopWritesThreshold: 4,
		TargetByteDeletionRate:      128 << 20,
	}
	opts.Experimental.EnableColumnarBlocks = func() bool { return true }
	opts.Experimental.L0CompactionConcurrency = 2
	opts.Experimental.MultiLevelCompactionHeuristic = pebble.NoMultiLevel{}
	for i := range opts.Levels {
		level := &opts.Levels[i]
		level.BlockSize = 32 << 10
		level.IndexBlockSize = 256 << 10
		level.FilterPolicy = pebble.NoFilterPolicy
		if s.bloomBits > 0 {
			level.FilterPolicy = bloom.FilterPolicy(s.bloomBits)
		}
	}
	opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings {
		return pebble.DBCompressionNone
	})
	return opts
}

// inWords describes options in words, with Pebble's defaults filled in.
func inWords(opts *pebble.Options) string {
	opts.EnsureDefaults()
	level := &opts.Levels[0]
	_, most := opts.CompactionConcurrencyRange()
	return fmt.Sprintf(
		"%d KiB blocks in columns, %d KiB index blocks, filters of %d bits per key at every level, "+
			"memtables of %d MiB (up to %d), compaction of level 0 at a threshold of %d (a sublevel "+
			"counts twice), %d MiB in the first level below, tables of %d MiB that double from "+
			"level to level, at most %d compactions besides flushes, deletions of at most %d MiB/s, "+
			"Go's collector at %d %% with a soft limit",
		level.BlockSize>>10, level.IndexBlockSize>>10, filterBits(level.FilterPolicy),
		opts.MemTableSize>>20, opts.MemTableStopWritesThreshold, opts.L0CompactionThreshold,
		opts.LBaseMaxBytes>>20, opts.TargetFileSizes[0]>>20, most, opts.TargetByteDeletionRate>>20,
		collectorPercent,
	)
}

// filterBits returns the bits per key of a policy, 0 without a filter.
func filterBits(policy pebble.FilterPolicy) int {
	bits, _ := policy.(bloom.FilterPolicy)
	return int(bits)
}

// collectorPercent is the growth of Go's heap that starts a collection.
const collectorPercent = 300

// compactionsMost returns the limit of concurrent compactions: one processor stays free for other
// work.
func compactionsMost() int {
	return min(3, max(1, runtime.GOMAXPROCS(0)-1))
}

// quiet logs errors to standard error, and nothing else.
type quiet struct{}

func (quiet) Infof(string, ...interface{})               {}
func (quiet) Errorf(format string, words ...interface{}) { log.Printf(format, words...) }
func (quiet) Fatalf(format string, words ...interface{}) { log.Fatalf(format, words...) }

// tuneCollector sets Go's garbage collector as a CockroachDB node does by default: its percentage,
// and a soft limit. The limit is 2.25 times the quarter of the memory that its queries may take, as
// far as the cache leaves memory for it.
func tuneCollector(cacheBytes int64) {
	debug.SetGCPercent(collectorPercent)
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return
	}
	memory := float64(info.Totalram) * float64(info.Unit)
	limit := min(2.25*memory/4, 0.9*memory-1.15*float64(cacheBytes))
	debug.SetMemoryLimit(int64(max(limit, 256<<20)))
}
