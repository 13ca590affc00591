package main

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/hibiken/asynq"
)

func decodeStrictly(raw []byte, into any) error {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second))
}

func unixTime(s float64) time.Time {
	whole := int64(s)
	return time.Unix(whole, int64((s-float64(whole))*1e9))
}

// unixOf returns Unix time in seconds, 0 for "never".
func unixOf(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / 1e9
}

// options are Asynq's options; nil is "not given".
type options struct {
	Queue     *string  `json:"queue"`
	MaxRetry  *int     `json:"max_retry"`
	Timeout   *float64 `json:"timeout"`
	Deadline  *float64 `json:"deadline"`
	Unique    *float64 `json:"unique"`
	ProcessAt *float64 `json:"process_at"`
	ProcessIn *float64 `json:"process_in"`
	Retention *float64 `json:"retention"`
	TaskID    *string  `json:"task_id"`
	Group     *string  `json:"group"`
}

func (o options) list() []asynq.Option {
	var list []asynq.Option
	if o.Queue != nil {
		list = append(list, asynq.Queue(*o.Queue))
	}
	if o.MaxRetry != nil {
		list = append(list, asynq.MaxRetry(*o.MaxRetry))
	}
	if o.Timeout != nil {
		list = append(list, asynq.Timeout(seconds(*o.Timeout)))
	}
	if o.Deadline != nil {
		list = append(list, asynq.Deadline(unixTime(*o.Deadline)))
	}
	if o.Unique != nil {
		list = append(list, asynq.Unique(seconds(*o.Unique)))
	}
	if o.ProcessAt != nil {
		list = append(list, asynq.ProcessAt(unixTime(*o.ProcessAt)))
	}
	if o.ProcessIn != nil {
		list = append(list, asynq.ProcessIn(seconds(*o.ProcessIn)))
	}
	if o.Retention != nil {
		list = append(list, asynq.Retention(seconds(*o.Retention)))
	}
	if o.TaskID != nil {
		list = append(list, asynq.TaskID(*o.TaskID))
	}
	if o.Group != nil {
		list = append(list, asynq.Group(*o.Group))
	}
	return list
}

// newTask is a task that someone wants to enqueue. A payload that is not given is nil, which is not an empty one.
type newTask struct {
	Type    string            `json:"type"`
	Payload *[]byte           `json:"payload"`
	Headers map[string]string `json:"headers"`
	Options options           `json:"options"`
}

func (t newTask) task() *asynq.Task {
	var payload []byte
	if t.Payload != nil {
		payload = append([]byte{}, *t.Payload...)
	}
	return asynq.NewTaskWithHeaders(t.Type, payload, t.Headers, t.Options.list()...)
}

type taskInfo struct {
	ID            string            `json:"id"`
	Queue         string            `json:"queue"`
	Type          string            `json:"type"`
	Payload       []byte            `json:"payload"`
	Headers       map[string]string `json:"headers"`
	State         string            `json:"state"`
	MaxRetry      int               `json:"max_retry"`
	Retried       int               `json:"retried"`
	LastError     string            `json:"last_error"`
	LastFailedAt  float64           `json:"last_failed_at"`
	Timeout       float64           `json:"timeout"`
	Deadline      float64           `json:"deadline"`
	Group         string            `json:"group"`
	NextProcessAt float64           `json:"next_process_at"`
	IsOrphaned    bool              `json:"is_orphaned"`
	Retention     float64           `json:"retention"`
	CompletedAt   float64           `json:"completed_at"`
	Result        []byte            `json:"result"`
}

func infoOf(t *asynq.TaskInfo) taskInfo {
	return taskInfo{
		ID:            t.ID,
		Queue:         t.Queue,
		Type:          t.Type,
		Payload:       t.Payload,
		Headers:       t.Headers,
		State:         t.State.String(),
		MaxRetry:      t.MaxRetry,
		Retried:       t.Retried,
		LastError:     t.LastErr,
		LastFailedAt:  unixOf(t.LastFailedAt),
		Timeout:       t.Timeout.Seconds(),
		Deadline:      unixOf(t.Deadline),
		Group:         t.Group,
		NextProcessAt: unixOf(t.NextProcessAt),
		IsOrphaned:    t.IsOrphaned,
		Retention:     t.Retention.Seconds(),
		CompletedAt:   unixOf(t.CompletedAt),
		Result:        t.Result,
	}
}

func infosOf(tasks []*asynq.TaskInfo) []taskInfo {
	infos := make([]taskInfo, len(tasks))
	for i, task := range tasks {
		infos[i] = infoOf(task)
	}
	return infos
}
