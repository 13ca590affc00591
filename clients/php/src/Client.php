<?php

declare(strict_types=1);

namespace Pyasynq;

/** Enqueues tasks, and waits for their results. */
final class Client
{
    private const LATER = [0, 429, 500, 502, 503, 504];
    private const REPEAT_SECONDS = 55.0;

    private readonly Address $address;

    public function __construct(?string $service = null, #[\SensitiveParameter] ?string $key = null)
    {
        Requirements::check(['curl', 'json']);
        $this->address = new Address($service, $key);
    }

    /**
     * Enqueue a task; return its description. A lost answer is asked for again, and enqueues no second task.
     *
     * @param array<string, mixed> $options such as task_id, process_in, max_retry, timeout, retention
     * @return array<string, mixed>
     */
    public function enqueue(string $type, mixed $params = null, array $options = []): array
    {
        return $this->repeat('POST', '/v1/tasks', self::describeTask($type, $params, $options));
    }

    /**
     * Enqueue up to 1,000 tasks of [type, params, options]; return a result or a problem for each, in order.
     *
     * @param list<array{0: string, 1?: mixed, 2?: array<string, mixed>}> $tasks
     * @return list<array<string, mixed>>
     */
    public function enqueueMany(array $tasks): array
    {
        $bodies = array_map(
            static fn (array $task): array => self::describeTask($task[0], $task[1] ?? null, $task[2] ?? []),
            $tasks,
        );
        return array_values($this->repeat('POST', '/v1/tasks:batch', ['tasks' => $bodies])['results'] ?? []);
    }

    /**
     * Wait for the end of a task; return its state and result, or null if it has not ended in this time.
     *
     * @return array<string, mixed>|null
     */
    public function wait(string $queue, string $id, float $seconds = 60.0): ?array
    {
        $until = microtime(true) + $seconds;
        do {
            $left = max(0.0, min(20.0, $until - microtime(true)));
            $path = sprintf('/v1/tasks/%s/%s/result?wait=%.3F', rawurlencode($queue), rawurlencode($id), $left);
            $answer = $this->repeat('GET', $path, null);
            if ($answer['ended'] ?? false) {
                return $answer;
            }
        } while (microtime(true) < $until);
        return null;
    }

    /** @return array<string, mixed> */
    private static function describeTask(string $type, mixed $params, array $options): array
    {
        $task = ['type' => $type];
        if ($params !== null) {
            $task['params'] = $params === [] ? new \stdClass() : $params;
        }
        return $options === [] ? $task : $task + ['options' => $options];
    }

    /** @return array<string, mixed> */
    private function repeat(string $method, string $path, mixed $body): array
    {
        $headers = $body === null ? [] : ['Idempotency-Key: ' . bin2hex(random_bytes(16))];
        $until = microtime(true) + self::REPEAT_SECONDS;
        for ($pause = 0.25;; $pause = min(5.0, 2 * $pause)) {
            $handle = $this->address->prepare($method, $path, $body, 50.0, $headers);
            $content = curl_exec($handle);
            [$status, $answer] = is_string($content) ? Address::readAnswer($handle, $content) : [0, []];
            if ($status >= 200 && $status < 300) {
                return $answer;
            }
            if (!in_array($status, self::LATER, true) || microtime(true) + $pause > $until) {
                throw new ServiceException(Address::describe($status, $answer, curl_error($handle) ?: 'the answer was cut'), $status);
            }
            usleep((int) ($pause * 1_000_000));
        }
    }
}
