<?php

declare(strict_types=1);

// A child dies, and its worker sends it a task before it hears of that; no service is needed.

use Pyasynq\Worker;

spl_autoload_register(static function (string $name): void {
    require dirname(__DIR__, 2) . '/clients/php/src/' . basename(str_replace('\\', '/', $name)) . '.php';
});

[, $file] = $argv;
$worker = new Worker('http://127.0.0.1:9');
$worker->on('resize', static function (array $params) use ($file): void {
    file_put_contents($file, $params['name'], FILE_APPEND);
});

function call(Worker $worker, string $method, mixed ...$arguments): mixed
{
    return (new ReflectionMethod($worker, $method))->invoke($worker, ...$arguments);
}

function field(Worker $worker, string $name): ReflectionProperty
{
    return new ReflectionProperty($worker, $name);
}

function start(Worker $worker, string $name): void
{
    $leased = [
        'token' => $name, 'id' => $name, 'type' => 'resize', 'queue' => 'resize', 'attempt' => 1, 'max_retry' => 1,
        'deadline' => '2100-01-01T00:00:00Z', 'headers' => [], 'payload' => ['name' => $name],
    ];
    call($worker, 'start', 0, $leased, microtime(true));
}

/** @return list<string> paths of the requests that the worker has made */
function paths(Worker $worker): array
{
    $urls = array_map(
        static fn (array $request): string => curl_getinfo($request[0], CURLINFO_EFFECTIVE_URL),
        field($worker, 'requests')->getValue($worker),
    );
    return array_values(array_map(static fn (string $url): string => (string) parse_url($url, PHP_URL_PATH), $urls));
}

call($worker, 'fork');
while (!($processes = field($worker, 'processes')->getValue($worker))) {
    call($worker, 'step');
}
posix_kill($processes[0], SIGKILL);
$guard = field($worker, 'guard')->getValue($worker)->stream;
while (!str_contains((string) stream_socket_recvfrom($guard, 65_536, STREAM_PEEK), 'born')) {
    usleep(1_000);
}
// The guard has a new child, and the worker does not know it yet.
field($worker, 'pipes')->getValue($worker)[0]->write('the rest of a task that was too large for the buffer');
start($worker, 'dead');
call($worker, 'hearChildren');
field($worker, 'tasks')->setValue($worker, [null]);
start($worker, 'next');
while (count(paths($worker)) < 2) {
    call($worker, 'hearChildren');
    usleep(1_000);
}
echo json_encode(['paths' => paths($worker), 'timers' => array_keys(field($worker, 'timers')->getValue($worker))]);
