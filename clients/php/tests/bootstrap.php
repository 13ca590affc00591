<?php

declare(strict_types=1);

spl_autoload_register(static function (string $name): void {
    if (str_starts_with($name, 'Pyasynq\\')) {
        require dirname(__DIR__) . '/src/' . substr($name, strlen('Pyasynq\\')) . '.php';
    }
});
