// A worker of pyasynq's task service in Node 20 or later, without a dependency.
// It leases tasks over HTTP, extends their leases while handlers run, obeys cancellations, and drains at TERM.
//
//   PYASYNQ_SERVICE=http://127.0.0.1:8080 PYASYNQ_KEY=... node worker.mjs resize
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';

const service = process.env.PYASYNQ_SERVICE ?? 'http://127.0.0.1:8080';
const concurrency = 4;
const lease = Number(process.env.LEASE_SECONDS ?? 30);
const third = Math.round((lease * 1000) / 3);
const settleFor = 55_000;

// Your code. It ends early when the signal is aborted.
async function handle(task, signal) {
  const { number, seconds = 0 } = task.payload;
  if (!Number.isInteger(number)) throw new Error('number is missing');
  await sleep(seconds * 1000, undefined, { signal });
  return { double: 2 * number };
}

// Send a request once; the status is 0 without an answer. An answer that has begun to arrive is read to its
// end, whatever the signal says: it may have a task.
async function post(path, body, signal) {
  const call = new AbortController();
  const abort = () => call.abort(signal.reason);
  signal.addEventListener('abort', abort, { once: true });
  const headers = { 'Content-Type': 'application/json' };
  if (process.env.PYASYNQ_KEY) headers.Authorization = `Bearer ${process.env.PYASYNQ_KEY}`;
  try {
    const sent = { method: 'POST', headers, body: JSON.stringify(body), signal: call.signal };
    const answer = await fetch(service + path, sent);
    signal.removeEventListener('abort', abort);
    const text = await answer.text();
    return { status: answer.status, content: text ? JSON.parse(text) : {} };
  } catch (error) {
    return { status: 0, content: { detail: String(error.cause ?? error) } };
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

// Repeat a request until it is answered: the service recognises a repeat.
async function settle(token, act, body) {
  const until = Date.now() + settleFor;
  for (;;) {
    const { status } = await post(`/v1/attempts/${token}:${act}`, body, AbortSignal.timeout(settleFor));
    if ((status && status !== 429 && status < 500) || Date.now() > until) return status;
    await sleep(1000);
  }
}

// Extend the lease each third of it, until the handler has ended.
async function renew(task, handler, ended) {
  let ends = Date.now() + lease * 1000;
  let pause = third;
  while (await sleep(pause, true, { signal: ended }).catch(() => false)) {
    const asked = Date.now();
    const path = `/v1/attempts/${task.token}:extend`;
    const { status, content } = await post(path, { lease }, AbortSignal.timeout(third));
    pause = status === 200 ? third : Math.min(1000, third);
    if (status === 200) {
      task.token = content.token;
      ends = asked + lease * 1000;
    } else if ([404, 409, 410].includes(status) || Date.now() > ends) {
      task.isLost = true; // cancelled, timed out, or given to another worker
      handler.abort(new Error('the lease is lost'));
      return;
    }
  }
}

async function run(task) {
  const [handler, ended] = [new AbortController(), new AbortController()];
  const left = Math.max(0, Math.min(Date.parse(task.deadline) - Date.now(), 2 ** 31 - 1));
  const timer = setTimeout(() => handler.abort(new Error('the task timed out')), left);
  const renewing = renew(task, handler, ended.signal);
  let outcome;
  try {
    outcome = ['complete', { result: (await handle(task, handler.signal)) ?? null }];
  } catch (error) {
    const cause = handler.signal.aborted ? handler.signal.reason : error;
    outcome = ['fail', { error: String(cause).slice(0, 2000) }];
  }
  clearTimeout(timer);
  ended.abort();
  await renewing; // an extension under way brings another token
  if (task.isLost) return;
  const status = await settle(task.token, ...outcome);
  if (status !== 204) console.error(`the outcome of task ${JSON.stringify(task.id)} does not count: ${status}`);
}

const queues = process.argv.slice(2);
const running = new Set();
const draining = new AbortController();
for (const name of ['SIGTERM', 'SIGINT']) process.on(name, () => draining.abort());
while (!draining.signal.aborted) {
  if (running.size >= concurrency) {
    await Promise.race(running);
    continue;
  }
  const worker = { name: 'node example', language: `node ${process.versions.node}`, pid: process.pid };
  const request = { queues, limit: concurrency - running.size, wait: 20, lease, worker };
  const { status, content } = await post('/v1/leases', request, draining.signal);
  for (const task of content.tasks ?? []) {
    const work = run(task).finally(() => running.delete(work));
    running.add(work);
  }
  if (draining.signal.aborted || status === 200 || status === 204) continue;
  console.error(`no tasks were leased: ${status} ${content.detail ?? ''}`);
  if ([400, 401, 403, 404, 422].includes(status)) process.exit(1);
  await sleep(1000, undefined, { signal: draining.signal }).catch(() => {});
}
await Promise.all(running);
