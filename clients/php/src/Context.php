<?php

declare(strict_types=1);

namespace Pyasynq;

/** The task that a handler works on. */
final class Context
{
    /** @param array<string, string> $headers */
    public function __construct(
        public readonly string $id,
        public readonly string $type,
        public readonly string $queue,
        public readonly int $attempt,
        public readonly int $maxRetry,
        public readonly \DateTimeImmutable $deadline,
        public readonly array $headers,
        public readonly string $payload,
    ) {
    }
}
