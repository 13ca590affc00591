<?php

declare(strict_types=1);

namespace Pyasynq;

/** Extensions of PHP that the package needs; Debian's php-cli has no curl. */
final class Requirements
{
    /** @param list<string> $extensions */
    public static function check(array $extensions): void
    {
        $missing = array_filter($extensions, static fn (string $name): bool => !extension_loaded($name));
        if ($missing !== []) {
            throw new \RuntimeException(sprintf(
                'PHP lacks %s: install the packages of your system, such as php-curl, or build PHP with them',
                implode(', ', array_map(static fn (string $name): string => "ext-$name", $missing)),
            ));
        }
    }
}
