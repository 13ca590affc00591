<?php

declare(strict_types=1);

namespace Pyasynq;

/** Fails the attempt, and tries again after a delay: the task type's own one unless it is given. */
final class Retry extends \RuntimeException
{
    public function __construct(
        public readonly ?float $delay = null,
        string $reason = 'tried again',
        public readonly bool $spend = true,
    ) {
        parent::__construct($reason);
    }
}
