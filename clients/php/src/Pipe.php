<?php

declare(strict_types=1);

namespace Pyasynq;

/** Messages over one end of a pair of sockets: a length, then a serialized array. */
final class Pipe
{
    /** A socket takes more at once: so the other side is awake before the last part, and reads. */
    private const PART_BYTES = 65_536;

    private string $received = '';
    /** @var resource|null what the other side waits for, if not for this pipe */
    public mixed $wakeUp = null;

    /** @param resource $stream */
    public function __construct(public readonly mixed $stream)
    {
    }

    /** @return array{Pipe, Pipe} */
    public static function pair(): array
    {
        $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        if ($pair === false) {
            throw new \RuntimeException('no pair of sockets can be made: are there too many open files?');
        }
        return [new self($pair[0]), new self($pair[1])];
    }

    /** @param array<mixed> $message */
    public function send(array $message): bool
    {
        $data = serialize($message);
        return $this->write(pack('N', strlen($data)) . $data);
    }

    /** Send bytes as they are. */
    public function write(string $data): bool
    {
        stream_set_blocking($this->stream, true);
        for ($at = 0; $at < strlen($data); $at += $written) {
            $written = @fwrite($this->stream, substr($data, $at, self::PART_BYTES));
            if ($written === false || $written === 0) {
                return false;
            }
            if ($this->wakeUp !== null) {
                @fwrite($this->wakeUp, '.');
            }
        }
        return true;
    }

    /** Wait for a message; null at the end of the other side. */
    public function receive(): ?array
    {
        while (($message = $this->next()) === null) {
            if (!$this->read()) {
                return null;
            }
        }
        return $message;
    }

    /** Wait for a mark, and forget it and all before it; false at the end of the other side. */
    public function skipTo(string $mark): bool
    {
        while (($place = strpos($this->received, $mark)) === false) {
            $this->received = substr($this->received, -strlen($mark));
            if (!$this->read()) {
                return false;
            }
        }
        $this->received = substr($this->received, $place + strlen($mark));
        return true;
    }

    private function read(): bool
    {
        stream_set_blocking($this->stream, true);
        $data = @fread($this->stream, 65_536);
        $this->received .= (string) $data;
        return ($data !== false && $data !== '') || !feof($this->stream);
    }

    /** Return the messages that have arrived, without waiting; null at the end of the other side. */
    public function poll(): ?array
    {
        stream_set_blocking($this->stream, false);
        while (($data = @fread($this->stream, 65_536)) !== false && $data !== '') {
            $this->received .= $data;
        }
        $messages = [];
        while (($message = $this->next()) !== null) {
            $messages[] = $message;
        }
        return $messages === [] && feof($this->stream) ? null : $messages;
    }

    /** Forget what has arrived, also parts of messages. */
    public function drain(): void
    {
        stream_set_blocking($this->stream, false);
        do {
            $data = @fread($this->stream, 65_536);
        } while ($data !== false && $data !== '');
        $this->received = '';
    }

    private function next(): ?array
    {
        if (strlen($this->received) < 4) {
            return null;
        }
        $length = unpack('N', $this->received)[1];
        if (strlen($this->received) < 4 + $length) {
            return null;
        }
        $message = unserialize(substr($this->received, 4, $length), ['allowed_classes' => false]);
        $this->received = substr($this->received, 4 + $length);
        return is_array($message) ? $message : null;
    }
}
