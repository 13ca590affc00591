// Command tracing enqueues and runs tasks under OpenTelemetry's own SDK for the tests of pyasynq.
//
// It takes the URL of Redis and a word. "produce" enqueues a task within a span, and prints the ids of trace
// and span. "consume" runs one task of the queue "go" within a span that continues the task's context, and
// prints the ids of its trace and of the parent.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
)

var (
	propagator = propagation.TraceContext{}
	tracer     = trace.NewTracerProvider().Tracer("peer")
)

func main() {
	redis, err := asynq.ParseRedisURI(os.Args[1])
	if err == nil {
		err = map[string]func(asynq.RedisConnOpt) error{"produce": produce, "consume": consume}[os.Args[2]](redis)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func produce(redis asynq.RedisConnOpt) error {
	ctx, span := tracer.Start(context.Background(), "request")
	defer span.End()
	headers := propagation.MapCarrier{}
	propagator.Inject(ctx, headers)
	client := asynq.NewClient(redis)
	defer client.Close()
	if _, err := client.Enqueue(asynq.NewTaskWithHeaders("middle", []byte("{}"), headers)); err != nil {
		return err
	}
	fmt.Println(span.SpanContext().TraceID(), span.SpanContext().SpanID())
	return nil
}

func consume(redis asynq.RedisConnOpt) error {
	ran := make(chan struct{})
	server := asynq.NewServer(redis, asynq.Config{Queues: map[string]int{"go": 1}, LogLevel: asynq.FatalLevel})
	handle := func(ctx context.Context, task *asynq.Task) error {
		ctx = propagator.Extract(ctx, propagation.MapCarrier(task.Headers()))
		_, span := tracer.Start(ctx, "last")
		defer span.End()
		parent := span.(trace.ReadOnlySpan).Parent()
		fmt.Println(span.SpanContext().TraceID(), parent.SpanID())
		close(ran)
		return nil
	}
	if err := server.Start(asynq.HandlerFunc(handle)); err != nil {
		return err
	}
	<-ran
	server.Shutdown()
	return nil
}
