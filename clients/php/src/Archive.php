<?php

declare(strict_types=1);

namespace Pyasynq;

/** Archives the task: another attempt would fail in the same way. */
final class Archive extends \RuntimeException
{
}
