<?php

declare(strict_types=1);

namespace Pyasynq;

/** Where the task service is, and the key for it; prepares requests. */
final class Address
{
    private readonly string $service;
    private readonly string $key;

    public function __construct(?string $service, ?string $key)
    {
        $this->service = rtrim($service ?? (getenv('PYASYNQ_SERVICE') ?: ''), '/');
        $this->key = $key ?? (getenv('PYASYNQ_KEY') ?: '');
        if (preg_match('~^https?://[^/\s@]+(/\S*)?$~D', $this->service) !== 1) {
            throw new \InvalidArgumentException(
                'service: give the address of the task service, or set PYASYNQ_SERVICE=http://task-queue:8080',
            );
        }
        if (preg_match('/[^\x21-\x7e]/', $this->key) === 1) {
            throw new \InvalidArgumentException('key: an API key is a word, as `pyasynq key make` prints it');
        }
    }

    /** @param list<string> $headers */
    public function prepare(string $method, string $path, mixed $body, float $seconds, array $headers = []): \CurlHandle
    {
        $handle = curl_init($this->service . $path);
        if ($handle === false) {
            throw new ServiceException('curl cannot be used');
        }
        if ($this->key !== '') {
            $headers[] = "Authorization: Bearer {$this->key}";
        }
        if ($body !== null) {
            $headers[] = 'Content-Type: application/json';
            $flags = JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES | JSON_PRESERVE_ZERO_FRACTION;
            curl_setopt($handle, CURLOPT_POSTFIELDS, json_encode($body, $flags));
        }
        curl_setopt_array($handle, [
            CURLOPT_CUSTOMREQUEST => $method,
            CURLOPT_HTTPHEADER => [...$headers, 'Expect:'],
            CURLOPT_RETURNTRANSFER => true,
            CURLOPT_CONNECTTIMEOUT_MS => 5_000,
            CURLOPT_TIMEOUT_MS => (int) ($seconds * 1_000),
            CURLOPT_NOSIGNAL => true,
        ]);
        return $handle;
    }

    /**
     * Return the status and the body of an answer. The status is 0 for one that was cut: curl takes the end of a
     * connection within the head for the end of the answer.
     *
     * @return array{int, array<string, mixed>}
     */
    public static function readAnswer(\CurlHandle $handle, string $content): array
    {
        $status = (int) curl_getinfo($handle, CURLINFO_RESPONSE_CODE);
        $found = json_decode($content, true);
        if (!is_array($found)) {
            return [$status >= 200 && $status < 300 && $status !== 204 ? 0 : $status, []];
        }
        return [$status, $found];
    }

    /** @param array<string, mixed> $problem */
    public static function describe(int $status, array $problem, string $error = ''): string
    {
        if ($status === 0) {
            return "the task service does not answer: $error";
        }
        $words = trim(($problem['detail'] ?? '') . ' ' . ($problem['remedy'] ?? ''));
        return "the task service has answered $status: " . ($words ?: 'it gave no reason');
    }
}
