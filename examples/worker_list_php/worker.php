<?php
// A worker for a task type of kind = "list" (see docs/lists.md) in PHP 8.1 or later: it speaks Redis, nothing else.
// It needs pcntl and posix. An error ends it: run it under systemd, which starts it again.
//
//   REDIS=tcp://127.0.0.1:6379 php worker.php resize 3

// Your code. What it returns is the result; an exception is a failure, after which the task is retried.
function handle(array $task): mixed
{
    $number = $task['payload']['number'] ?? throw new InvalidArgumentException('number is missing');
    sleep($task['payload']['seconds'] ?? 0);
    return ['double' => 2 * $number];
}

function connect()
{
    $redis = stream_socket_client(getenv('REDIS') ?: 'tcp://127.0.0.1:6379') ?: exit(1);
    if ($password = getenv('REDIS_PASSWORD')) ask($redis, 'AUTH', getenv('REDIS_USER') ?: 'default', $password);
    return $redis;
}

function ask($redis, string|int ...$words): mixed
{
    $parts = array_map(fn($word) => '$' . strlen($word) . "\r\n$word\r\n", $words);
    fwrite($redis, '*' . count($words) . "\r\n" . implode($parts));
    return read($redis);
}

function read($redis): mixed
{
    stream_set_timeout($redis, 60);
    $line = fgets($redis) ?: throw new RuntimeException('Redis has closed the connection');
    [$kind, $text] = [$line[0], rtrim(substr($line, 1))];
    return match ($kind) {
        '+', ':' => $text,
        '$' => $text < 0 ? null : substr(stream_get_contents($redis, $text + 2), 0, -2),
        '*' => $text < 0 ? null : array_map(fn() => read($redis), range(1, max(1, (int) $text))),
        default => throw new RuntimeException("Redis says $text"),
    };
}

[, $type, $shard] = $argv;
$list = "asynq:x:list:{{$type}:$shard}";
$name = bin2hex(random_bytes(8)); // of this process: its next one does not have the same
$parent = getmypid();
if (!($beats = pcntl_fork())) { // the heartbeat: a process of its own, which ends when the worker does
    foreach ([SIGTERM, SIGINT] as $signal) pcntl_signal($signal, SIG_IGN);
    for ($redis = connect(); posix_getppid() === $parent; sleep(4)) {
        ask($redis, 'SADD', "$list:workers", $name);
        ask($redis, 'SET', "$list:alive:$name", 1, 'EX', 15);
    }
    exit;
}
$isEnding = false;
pcntl_async_signals(true);
foreach ([SIGTERM, SIGINT] as $signal) pcntl_signal($signal, function () use (&$isEnding) { $isEnding = true; });
for ($redis = connect(); !$isEnding;) {
    $entry = ask($redis, 'BLMOVE', $list, "$list:held:$name", 'LEFT', 'RIGHT', 2);
    if ($entry === null) continue;
    $task = json_decode($entry, true);
    try {
        $reply = ['act' => 'complete', 'result' => handle($task)];
    } catch (Throwable $error) {
        $reply = ['act' => 'fail', 'error' => get_class($error) . ': ' . $error->getMessage()];
    }
    ask($redis, 'MULTI'); // together: the entry is let go, and replied to
    ask($redis, 'LREM', "$list:held:$name", 1, $entry);
    ask($redis, 'RPUSH', "$list:replies", json_encode(['token' => $task['token']] + $reply));
    ask($redis, 'EXEC');
}
ask($redis, 'SREM', "$list:workers", $name);
posix_kill($beats, SIGKILL);
