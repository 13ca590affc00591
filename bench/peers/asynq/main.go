// Command asynq is the peer in Go of pyasynq's benchmark; bench/peers/shape.py says what is asked of a peer.
//
//	asynq describe
//	asynq enqueue
//	asynq work SETTINGS
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
)

type description struct {
	Title       string            `json:"title"`
	Versions    map[string]string `json:"versions"`
	Setup       string            `json:"setup"`
	AfterACrash string            `json:"after_a_crash"`
	AtLeastOnce bool              `json:"at_least_once"`
	Modes       []string          `json:"modes"`
	Fill        string            `json:"fill"`
	Left        [][]string        `json:"left"`
}

func describe() description {
	versions := map[string]string{"Go": runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/hibiken/asynq" || module.Path == "github.com/redis/go-redis/v9" {
				versions[module.Path] = module.Version
			}
		}
	}
	return description{
		Title:       "Asynq in Go",
		Versions:    versions,
		Setup:       "asynq.Server with concurrency 100 unless the row says otherwise, typed handlers by encoding/json",
		AfterACrash: "recovered when the lease lapses and the recoverer comes round (up to 2 minutes)",
		AtLeastOnce: true,
		Modes:       []string{"one", "concurrent"},
		Fill:        "concurrent",
		Left:        [][]string{{"LLEN", "asynq:{QUEUE}:pending"}, {"LLEN", "asynq:{QUEUE}:active"}},
	}
}

func tell(message any) error { return json.NewEncoder(os.Stdout).Encode(message) }

func run(arguments []string) error {
	if len(arguments) == 0 {
		return fmt.Errorf("name a command: describe, enqueue or work")
	}
	switch arguments[0] {
	case "describe":
		return tell(describe())
	case "enqueue":
		return serveOrders()
	case "work":
		if len(arguments) < 2 {
			return fmt.Errorf("work takes its settings as JSON")
		}
		return work(arguments[1])
	default:
		return fmt.Errorf("%q is not a command: use describe, enqueue or work", arguments[0])
	}
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
