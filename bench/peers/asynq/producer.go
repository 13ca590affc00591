package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
)

const (
	goroutines = 100
	address    = "somebody@example.com"
)

type order struct {
	Mode   string   `json:"mode"`
	Count  int      `json:"count"`
	Size   int      `json:"size"`
	Queues []string `json:"queues"`
	Paced  float64  `json:"paced"`
	Limit  float64  `json:"limit"`
	Stay   bool     `json:"stay"`
}

type result struct {
	Count   int     `json:"count"`
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`
}

type producer struct {
	client *asynq.Client
}

// serveOrders takes each order in two steps: once it is prepared, a line is answered, and the next line starts it.
func serveOrders() error {
	redis, err := asynq.ParseRedisURI(os.Getenv("BENCH_REDIS_URL"))
	if err != nil {
		return err
	}
	p := producer{client: asynq.NewClient(redis)}
	defer p.client.Close()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		notes := o.notes()
		if err := tell(map[string]bool{"ready": true}); err != nil {
			return err
		}
		if !lines.Scan() {
			return nil
		}
		done, err := p.carryOut(o, notes)
		if err != nil {
			return err
		}
		if err := tell(done); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (o order) notes() []note {
	bare, _ := json.Marshal(note{Number: 1_000_000, Email: address})
	text := strings.Repeat("x", max(0, o.Size-len(bare)))
	notes := make([]note, o.Count)
	for i := range notes {
		notes[i] = note{Number: int64(1_000_000 + i), Email: address, Text: text}
		if o.Stay {
			notes[i].Sent = stay
		}
	}
	return notes
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

func (p producer) carryOut(o order, notes []note) (result, error) {
	cpu, begun := cpuSeconds(), time.Now()
	count, err := len(notes), error(nil)
	switch {
	case o.Paced > 0:
		count, err = p.paced(o, notes)
	case o.Mode == "one":
		err = p.oneByOne(o, notes)
	case o.Mode == "concurrent":
		err = p.concurrently(o, notes)
	default:
		err = fmt.Errorf("%q is not a mode; the modes are one and concurrent", o.Mode)
	}
	return result{Count: count, Seconds: time.Since(begun).Seconds(), CPU: cpuSeconds() - cpu}, err
}

func (p producer) enqueue(n note, queue string) error {
	payload, err := json.Marshal(n)
	if err != nil {
		return err
	}
	_, err = p.client.Enqueue(asynq.NewTask(noteType, payload), asynq.Queue(queue))
	return err
}

func (p producer) oneByOne(o order, notes []note) error {
	for i, n := range notes {
		if err := p.enqueue(n, o.Queues[i%len(o.Queues)]); err != nil {
			return err
		}
	}
	return nil
}

func (p producer) concurrently(o order, notes []note) error {
	var next atomic.Int64
	var all sync.WaitGroup
	var failure atomic.Pointer[error]
	for range goroutines {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := next.Add(1) - 1; i < int64(len(notes)); i = next.Add(1) - 1 {
				if err := p.enqueue(notes[i], o.Queues[int(i)%len(o.Queues)]); err != nil {
					failure.Store(&err)
					return
				}
			}
		}()
	}
	all.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return nil
}

// paced sends each task when the one before has run.
func (p producer) paced(o order, notes []note) (int, error) {
	shared, err := mapCounters()
	if err != nil {
		return 0, err
	}
	ends := time.Now().Add(time.Duration(o.Limit * float64(time.Second)))
	before := shared.total(0)
	for i, n := range notes {
		n.Number = int64(i)
		n.Sent = time.Now().UnixNano()
		if err := p.enqueue(n, o.Queues[i%len(o.Queues)]); err != nil {
			return i, err
		}
		for shared.total(0) <= before+int64(i) {
			if time.Now().After(ends) {
				return i, nil
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(o.Paced * float64(time.Second)))
		if time.Now().After(ends) {
			return i + 1, nil
		}
	}
	return len(notes), nil
}
