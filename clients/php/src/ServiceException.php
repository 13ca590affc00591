<?php

declare(strict_types=1);

namespace Pyasynq;

/** The task service refuses a request, or does not answer; the code is the status of HTTP, or 0. */
final class ServiceException extends \RuntimeException
{
}
