// Command peer drives Asynq for the tests of pyasynq.
//
// It reads one JSON object a line from stdin, {"call": name, "arguments": {...}}, and answers each with one line:
// {"result": ...} or {"error": {"kind": ..., "text": ...}}. Bytes are base64, durations are seconds, and times are
// Unix time in seconds. It ends with stdin.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hibiken/asynq"
)

// A call does one thing to Redis. Calls are made one at a time.
type call func(p *peer, arguments json.RawMessage) (any, error)

var calls = map[string]call{}

// register adds a call whose arguments are decoded into a value of type A; unknown arguments are refused.
func register[A any](name string, do func(p *peer, arguments A) (any, error)) {
	calls[name] = func(p *peer, raw json.RawMessage) (any, error) {
		var arguments A
		if err := decodeStrictly(raw, &arguments); err != nil {
			return nil, fmt.Errorf("arguments of %s: %w", name, err)
		}
		return do(p, arguments)
	}
}

// peer holds what outlives a call.
type peer struct {
	redis       connection
	client      *asynq.Client
	inspector   *asynq.Inspector
	servers     map[string]*server
	aggregators *aggregators
	schedulers  map[string]*asynq.Scheduler
}

type request struct {
	Call      string          `json:"call"`
	Arguments json.RawMessage `json:"arguments"`
}

type failure struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

type reply struct {
	Result any      `json:"result"`
	Error  *failure `json:"error,omitempty"`
}

func main() {
	p := &peer{servers: map[string]*server{}, schedulers: map[string]*asynq.Scheduler{}}
	requests := bufio.NewReaderSize(os.Stdin, 1<<20)
	replies := json.NewEncoder(os.Stdout)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil {
			p.close()
			return
		}
		if err := replies.Encode(p.answer(line)); err != nil {
			fmt.Fprintln(os.Stderr, "cannot answer:", err)
			os.Exit(1)
		}
	}
}

func (p *peer) answer(line []byte) reply {
	var r request
	if err := decodeStrictly(line, &r); err != nil {
		return reply{Error: &failure{"request", err.Error()}}
	}
	do, ok := calls[r.Call]
	if !ok {
		return reply{Error: &failure{"request", fmt.Sprintf("there is no call %q", r.Call)}}
	}
	if p.client == nil && r.Call != "connect" {
		return reply{Error: &failure{"request", "the first call is connect"}}
	}
	result, err := do(p, r.Arguments)
	if err != nil {
		return reply{Error: &failure{kindOf(err), err.Error()}}
	}
	return reply{Result: result}
}

// kindOf names the errors of Asynq that callers tell apart.
func kindOf(err error) string {
	kinds := []struct {
		err  error
		kind string
	}{
		{asynq.ErrDuplicateTask, "duplicate"},
		{asynq.ErrTaskIDConflict, "conflict"},
		{asynq.ErrQueueNotFound, "queue not found"},
		{asynq.ErrQueueNotEmpty, "queue not empty"},
		{asynq.ErrTaskNotFound, "task not found"},
	}
	for _, known := range kinds {
		if errors.Is(err, known.err) {
			return known.kind
		}
	}
	// Some operations of the inspector return an inner error, which only its text tells.
	if strings.HasSuffix(err.Error(), "does not exist") {
		return "queue not found"
	}
	return "other"
}

func init() {
	register("connect", func(p *peer, a struct {
		Network  string `json:"network"`
		Address  string `json:"address"`
		Database int    `json:"database"`
	}) (any, error) {
		p.close()
		p.redis = newConnection(a.Network, a.Address, a.Database)
		p.client = asynq.NewClientFromRedisClient(p.redis.client)
		p.inspector = asynq.NewInspectorFromRedisClient(p.redis.client)
		return nil, p.client.Ping()
	})
}

// close stops everything that runs. A server's unfinished tasks go back to their queues.
func (p *peer) close() {
	for name, scheduler := range p.schedulers {
		scheduler.Shutdown()
		delete(p.schedulers, name)
	}
	if p.aggregators != nil {
		p.aggregators.close()
		p.aggregators = nil
	}
	for name, s := range p.servers {
		s.stop()
		delete(p.servers, name)
	}
	if p.client != nil {
		p.redis.close()
		p.client = nil
	}
}
