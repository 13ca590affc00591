<?php

declare(strict_types=1);

namespace Pyasynq;

/**
 * A connection between the guard and the worker, on which the guard and the children write a byte for each part
 * of a message. To curl it is one more answer, so the worker can wait for the service and its children together.
 */
final class WakeUp
{
    private const SECONDS = 10.0;
    private const REQUEST_SECONDS = 1;

    /** Without it, another program could take the place of the worker. */
    private readonly string $secret;
    private readonly string $name;
    /** @var resource */
    private readonly mixed $listener;

    public function __construct()
    {
        $this->secret = bin2hex(random_bytes(16));
        $name = 'pyasynq-' . bin2hex(random_bytes(8));
        // Linux has sockets that need no writable folder.
        $this->name = PHP_OS_FAMILY === 'Linux' ? "\0$name" : sys_get_temp_dir() . "/$name";
        $listener = @stream_socket_server("unix://{$this->name}", $code, $error);
        if ($listener === false) {
            throw new \RuntimeException("the worker cannot make a local socket: $error");
        }
        $this->listener = $listener;
    }

    /** Return the request whose answer is what the guard and the children write. */
    public function prepare(): \CurlHandle
    {
        $handle = curl_init("http://wakeup/{$this->secret}");
        if ($handle === false) {
            throw new ServiceException('curl cannot be used');
        }
        $isAbstract = $this->name[0] === "\0";
        curl_setopt_array($handle, [
            $isAbstract ? CURLOPT_ABSTRACT_UNIX_SOCKET : CURLOPT_UNIX_SOCKET_PATH => ltrim($this->name, "\0"),
            CURLOPT_PROXY => '',
            CURLOPT_NOSIGNAL => true,
            CURLOPT_WRITEFUNCTION => static fn (\CurlHandle $handle, string $data): int => strlen($data),
        ]);
        return $handle;
    }

    /**
     * Wait for the request of the worker, and begin to answer it.
     *
     * @return resource|null null if no request comes
     */
    public function accept(): mixed
    {
        $stream = false;
        $until = microtime(true) + self::SECONDS;
        while (($left = $until - microtime(true)) > 0) {
            $stream = @stream_socket_accept($this->listener, $left);
            if ($stream === false) {
                continue;
            }
            stream_set_timeout($stream, self::REQUEST_SECONDS);
            if (hash_equals("GET /{$this->secret} HTTP/1.1", rtrim((string) fgets($stream)))) {
                fwrite($stream, "HTTP/1.0 200 OK\r\n\r\n");
                break;
            }
            fclose($stream);
            $stream = false;
        }
        $this->close();
        if ($this->name[0] !== "\0") {
            @unlink($this->name);
        }
        return $stream ?: null;
    }

    /** Close the listening socket of this process. */
    public function close(): void
    {
        fclose($this->listener);
    }
}
