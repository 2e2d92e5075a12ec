// Agenda drains tasks and starts some at a pace: a program of `mscheduler bench compare`. It reads its orders from the
// variable COMPARE, and prints a JSON object on a line for each phase, and one with what it measured at the end.
import { readFileSync } from 'node:fs';
import { Agenda } from 'agenda';
import { MongoBackend } from '@agendajs/mongo-backend';
import { MongoClient } from 'mongodb';

const order = JSON.parse(process.env.COMPARE);
const say = (report) => console.log(JSON.stringify(report));
const fail = (error) => { console.error(error?.message ?? error); process.exit(1); };
process.on('uncaughtException', fail);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const now = () => performance.now();
const processEvery = 100; // milliseconds; the default is 5 s

const client = await MongoClient.connect(order.uri);
const db = client.db(order.database);
const name = 'noop';

async function agenda() {
  const a = new Agenda({
    backend: new MongoBackend({ mongo: db, collection: 'jobs' }),
    processEvery, maxConcurrency: order.concurrency, defaultConcurrency: order.concurrency,
  });
  a.on('error', fail);
  await a.ready;
  return a;
}

let ended = 0;
const late = [];
function define(a) {
  a.define(name, async (job) => {
    if (job.attrs.data.sent) late.push(performance.timeOrigin + now() - job.attrs.data.sent);
  });
  a.on('complete', () => { ended++; }); // it is stored by then
}

async function reached(n) {
  while (ended < n) await pause(2);
}

const sender = await agenda();
sender.define(name, async () => {});
const pad = 'x'.repeat(order.args_bytes);
const send = (data) => sender.create(name, { pad, ...data }).schedule(new Date()).save();
let left = order.tasks;
await Promise.all(Array.from({ length: 50 }, async () => {
  while (left-- > 0) await send({});
}));

const worker = await agenda();
define(worker);
say({ phase: 'drain' });
const cpu = process.cpuUsage();
const began = now();
await worker.start();
await reached(order.tasks);
const took = now() - began;
const used = process.cpuUsage(cpu);
say({ phase: 'drained' });

const paced = Math.round((order.paced_ms / 1000) * order.rate);
const start = now();
const sends = [];
for (let i = 0; i < paced; i++) {
  const rest = start + (i * 1000) / order.rate - now();
  if (rest > 0) await pause(rest);
  sends.push(send({ sent: performance.timeOrigin + now() }));
}
await Promise.all(sends);
await reached(order.tasks + paced);
await worker.stop();
const { version } = JSON.parse(readFileSync('node_modules/agenda/package.json', 'utf8'));
say({ version, drain_ms: took, client_cpu_us: used.user + used.system, late_ms: late });
await client.close();
process.exit(0);
