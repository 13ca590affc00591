package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The layout of the counters file, as in counters.py.
const (
	slots       = 4096
	samples     = 4096
	staying     = 1
	firstSlot   = 8
	firstSample = firstSlot + 2*slots
	words       = firstSample + samples
	stay        = -1
)

// counters is the file in which all processes of a measurement count; this process has the slot at `own`.
type counters struct {
	words []int64
	own   int
}

func mapCounters() (*counters, error) {
	file, err := os.OpenFile(os.Getenv("BENCH_COUNTERS"), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	bytes, err := unix.Mmap(int(file.Fd()), 0, words*8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the counters: %w", err)
	}
	return &counters{words: unsafe.Slice((*int64)(unsafe.Pointer(&bytes[0])), words)}, nil
}

// attach takes a slot for this process.
func (c *counters) attach() {
	slot := atomic.AddInt64(&c.words[0], 1) - 1
	c.own = firstSlot + 2*int(slot)
}

func (c *counters) hit() { atomic.AddInt64(&c.words[c.own], 1) }

func (c *counters) started() { atomic.AddInt64(&c.words[c.own+1], 1) }

func (c *counters) note(number int64, delay time.Duration) {
	atomic.StoreInt64(&c.words[firstSample+number%samples], int64(delay))
}

func (c *counters) total(word int) int64 {
	sum := int64(0)
	for slot := int64(0); slot < atomic.LoadInt64(&c.words[0]); slot++ {
		sum += atomic.LoadInt64(&c.words[firstSlot+2*int(slot)+word])
	}
	return sum
}
