<?php

declare(strict_types=1);

namespace Pyasynq;

/** Runs the task again after a delay; nothing has failed. */
final class Snooze extends \RuntimeException
{
    public function __construct(public readonly float $delay)
    {
        parent::__construct("snoozed for $delay s");
    }
}
