package main

import (
	"context"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A part is what a command of a server is for, told by the keys that it names.
type part int

const (
	other part = iota
	takes
	settles
	forwards
	deletesExpired
	listsExpired
	reclaims
	listsGroups
	checksGroup
	readsSet
	deletesSet
	creates
	renews
	records
)

// A gate lets the commands of a server through to Redis, or answers them itself as if there were nothing to do.
// With it a real server can be led step by step: its parts run by their own timers, and only the one whose turn it
// is reaches Redis.
type gate struct {
	// admit says whether a command goes through. It may wait.
	admit func(one part, queue string) bool
	// passed is told of each command that went through, when its reply is there.
	passed func(one part, queue string, r response)
}

// response is what a command got. The error is not yet in the command when a hook sees it.
type response struct {
	command redis.Cmder
	err     error
}

// number returns the reply of a script that returns a number, 0 for an error.
func (r response) number() int {
	script, isScript := r.command.(*redis.Cmd)
	if r.err != nil || !isScript {
		return 0
	}
	number, _ := script.Val().(int64)
	return int(number)
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return next(ctx, network, address)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		one, queue := partOf(command)
		if one == other {
			return next(ctx, command)
		}
		if !g.admit(one, queue) {
			return answerNothing(command, one)
		}
		err := next(ctx, command)
		// A script that Redis does not know yet comes again, with its text.
		if err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
			g.passed(one, queue, response{command, err})
		}
		return err
	}
}

// answerNothing gives a command the reply that it gets when there is nothing to do.
func answerNothing(command redis.Cmder, one part) error {
	switch command := command.(type) {
	case *redis.Cmd:
		switch one {
		case takes:
			command.SetErr(redis.Nil)
			return redis.Nil
		case listsExpired:
			command.SetVal([]any{})
		default:
			command.SetVal(int64(0))
		}
	case *redis.IntCmd:
		command.SetVal(0)
	case *redis.StringSliceCmd:
		command.SetVal(nil)
	}
	return nil
}

func partOf(command redis.Cmder) (part, string) {
	arguments := command.Args()
	keys := keysOf(arguments)
	if len(keys) == 0 {
		return other, ""
	}
	if strings.HasPrefix(keys[0], "asynq:servers") || strings.HasPrefix(keys[0], "asynq:workers") {
		return records, ""
	}
	queue, first := split(keys[0])
	switch command.Name() {
	case "smembers":
		if first == "groups" {
			return listsGroups, queue
		}
	case "zadd":
		if first == "lease" {
			return renews, queue
		}
	case "eval", "evalsha":
		names := make([]string, len(keys))
		for i, key := range keys {
			_, names[i] = split(key)
		}
		return partOfScript(names), queue
	}
	return other, queue
}

func partOfScript(names []string) part {
	switch shape := strings.Join(names, " "); {
	case shape == "pending paused active lease":
		return takes
	case shape == "scheduled pending" || shape == "retry pending":
		return forwards
	case shape == "completed":
		return deletesExpired
	case shape == "lease":
		return listsExpired
	case shape == "aggregation_sets":
		return reclaims
	case strings.HasSuffix(shape, " aggregation_sets groups"):
		return checksGroup
	case strings.HasSuffix(shape, " aggregation_sets"):
		return deletesSet
	case len(names) == 1 && strings.HasPrefix(shape, "g:"):
		return readsSet
	case strings.HasPrefix(shape, "active lease ") || strings.Contains(shape, " active lease "):
		return settles
	case strings.HasPrefix(shape, "t:") || strings.HasPrefix(shape, "unique:"):
		return creates
	}
	return other
}

func keysOf(arguments []any) []string {
	if len(arguments) < 2 {
		return nil
	}
	name, _ := arguments[0].(string)
	if name != "eval" && name != "evalsha" {
		key, _ := arguments[1].(string)
		return []string{key}
	}
	count, _ := arguments[2].(int)
	keys := make([]string, 0, count)
	for _, key := range arguments[3 : 3+count] {
		text, _ := key.(string)
		keys = append(keys, text)
	}
	return keys
}

// split returns the queue of a key, and what follows its prefix.
func split(key string) (queue, rest string) {
	inner, found := strings.CutPrefix(key, "asynq:{")
	if !found {
		return "", key
	}
	queue, rest, found = strings.Cut(inner, "}:")
	if !found {
		return "", key
	}
	return queue, rest
}
