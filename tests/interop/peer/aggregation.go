package main

import (
	"errors"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Asynq looks at groups every seven seconds at most often, or every grace period if that is shorter.
const checkInterval = 7 * time.Second

// aggregateOf makes one task of many. What it makes does not depend on their order.
func aggregateOf(group string, tasks []*asynq.Task) *asynq.Task {
	payloads := make([]string, len(tasks))
	for i, task := range tasks {
		payloads[i] = task.Type() + "=" + string(task.Payload())
	}
	sort.Strings(payloads)
	return asynq.NewTask("aggregate:"+group, []byte(strings.Join(payloads, "\n")))
}

// aggregators are servers whose looks at the groups of one queue wait until somebody asks for one. There are many,
// begun one after another, because each looks so seldom.
type aggregators struct {
	looks  chan *look
	closed chan struct{}

	started sync.WaitGroup
	servers []*asynq.Server
}

// A look is one round over all groups. Its fields belong to the goroutine that makes it.
type look struct {
	// refuse has the aggregate be a task that cannot be enqueued, so that the set stays.
	refuse bool
	// left is how many groups have still to be looked at, or to become a task.
	left int
	done chan error
}

func (l *look) finishOne() {
	if l.left--; l.left == 0 {
		l.done <- nil
	}
}

// aggregator is one of the servers. Looks are asked for one at a time, so at most one is under way.
type aggregator struct {
	all    *aggregators
	mu     sync.Mutex
	active *look
}

func (one *aggregator) current() *look {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.active
}

func (one *aggregator) begin(l *look) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.active = l
}

func (one *aggregator) admit(p part, _ string) bool {
	switch p {
	case takes:
		<-one.all.closed
		return false
	case listsGroups:
		select {
		case l := <-one.all.looks:
			one.begin(l)
			return true
		case <-time.After(checkInterval):
		case <-one.all.closed:
		}
		return false
	case checksGroup, readsSet, deletesSet, creates:
		return true
	}
	return false
}

func (one *aggregator) passed(p part, _ string, r response) {
	l := one.current()
	switch p {
	case listsGroups:
		groups, _ := r.command.(*redis.StringSliceCmd)
		if l.left = len(groups.Val()); l.left == 0 {
			l.done <- r.err
		}
	case checksGroup:
		if r.number() == 0 {
			l.finishOne()
		}
	case creates:
		if r.number() != 1 {
			l.finishOne()
		}
	case deletesSet:
		l.finishOne()
	}
}

func (one *aggregator) aggregate(group string, tasks []*asynq.Task) *asynq.Task {
	if l := one.current(); l.refuse {
		l.finishOne()
		return asynq.NewTask("", nil)
	}
	return aggregateOf(group, tasks)
}

type aggregatorsConfig struct {
	Queue       string  `json:"queue"`
	Count       int     `json:"count"`
	GracePeriod float64 `json:"grace_period"`
	MaxDelay    float64 `json:"max_delay"`
	MaxSize     int     `json:"max_size"`
}

func startAggregators(p *peer, config aggregatorsConfig) *aggregators {
	all := &aggregators{looks: make(chan *look), closed: make(chan struct{})}
	all.started.Add(1)
	go func() {
		defer all.started.Done()
		for range config.Count {
			all.startOne(p, config)
			select {
			case <-time.After(checkInterval / time.Duration(config.Count)):
			case <-all.closed:
				return
			}
		}
	}()
	return all
}

func (all *aggregators) startOne(p *peer, config aggregatorsConfig) {
	one := &aggregator{all: all}
	s := asynq.NewServerFromRedisClient(
		p.redis.gated(&gate{one.admit, one.passed}),
		asynq.Config{
			Concurrency:              1,
			Queues:                   map[string]int{config.Queue: 1},
			TaskCheckInterval:        atOnce,
			DelayedTaskCheckInterval: never,
			JanitorInterval:          never,
			GroupGracePeriod:         seconds(config.GracePeriod),
			GroupMaxDelay:            seconds(config.MaxDelay),
			GroupMaxSize:             config.MaxSize,
			GroupAggregator:          asynq.GroupAggregatorFunc(one.aggregate),
			Logger:                   newSilent(),
		},
	)
	if s.Start(newHandler(nil)) == nil {
		all.servers = append(all.servers, s)
	}
}

func (all *aggregators) close() {
	close(all.closed)
	all.started.Wait()
	for _, s := range all.servers {
		s.Shutdown()
	}
}

func init() {
	register("start_aggregators", func(p *peer, a aggregatorsConfig) (any, error) {
		if p.aggregators != nil {
			return nil, errors.New("the aggregators have been started")
		}
		p.aggregators = startAggregators(p, a)
		return nil, nil
	})
	register("aggregate", func(p *peer, a struct {
		Refuse bool `json:"refuse"`
	}) (any, error) {
		if p.aggregators == nil {
			return nil, errors.New("the aggregators have not been started")
		}
		l := &look{refuse: a.Refuse, done: make(chan error, 1)}
		select {
		case p.aggregators.looks <- l:
		case <-time.After(2 * patience):
			return nil, errors.New("no aggregator looks")
		}
		select {
		case err := <-l.done:
			return nil, err
		case <-time.After(patience):
			return nil, errors.New("the look at the groups did not end")
		}
	})
}
