// A client or a server of Asynq, wherever Redis is.
//
//	member cluster HOST:PORT,... enqueue QUEUE COUNT PREFIX
//	member sentinel NAME@HOST:PORT,... serve QUEUE,...
//
// A server prints the id of each task that it has run, and serves until its standard input ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

const usage = "usage: member cluster|sentinel ADDRESSES enqueue QUEUE COUNT PREFIX | serve QUEUES"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) < 4 {
		return errors.New(usage)
	}
	redis, err := connection(arguments[0], arguments[1])
	if err != nil {
		return err
	}
	switch command, rest := arguments[2], arguments[3:]; {
	case command == "enqueue" && len(rest) == 3:
		count, err := strconv.Atoi(rest[1])
		if err != nil {
			return err
		}
		return enqueue(redis, rest[0], count, rest[2])
	case command == "serve" && len(rest) == 1:
		return serve(redis, strings.Split(rest[0], ","))
	}
	return errors.New(usage)
}

func connection(kind, where string) (asynq.RedisConnOpt, error) {
	switch kind {
	case "cluster":
		return asynq.RedisClusterClientOpt{Addrs: strings.Split(where, ",")}, nil
	case "sentinel":
		name, addresses, _ := strings.Cut(where, "@")
		return asynq.RedisFailoverClientOpt{MasterName: name, SentinelAddrs: strings.Split(addresses, ",")}, nil
	}
	return nil, errors.New(usage)
}

func enqueue(redis asynq.RedisConnOpt, queue string, count int, prefix string) error {
	client := asynq.NewClient(redis)
	defer client.Close()
	for number := range count {
		task := asynq.NewTask("mark", nil)
		id := fmt.Sprintf("%s%d", prefix, number)
		if _, err := client.Enqueue(task, asynq.Queue(queue), asynq.TaskID(id)); err != nil {
			return err
		}
	}
	return nil
}

func serve(redis asynq.RedisConnOpt, queues []string) error {
	priorities := map[string]int{}
	for _, queue := range queues {
		priorities[queue] = 1
	}
	server := asynq.NewServer(redis, asynq.Config{
		Concurrency:       4,
		Queues:            priorities,
		TaskCheckInterval: 10 * time.Millisecond,
		LogLevel:          asynq.FatalLevel,
	})
	handler := func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		fmt.Println("ran " + id)
		return nil
	}
	if err := server.Start(asynq.HandlerFunc(handler)); err != nil {
		return err
	}
	fmt.Println("serving")
	_, err := io.Copy(io.Discard, os.Stdin)
	server.Shutdown()
	return err
}
