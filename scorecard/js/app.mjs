// What the application does, for clients in JavaScript: the same lines and the same log as client.py.
import fs from 'node:fs'
import readline from 'node:readline'

Promise.withResolvers ??= function () { // Node 20
  let resolve, reject
  const promise = new Promise((a, b) => { resolve = a; reject = b })
  return { promise, resolve, reject }
}
export const cfg = JSON.parse(process.argv[2])
const fd = fs.openSync(cfg.log, 'a')
export const log = (kind, value) => fs.writeSync(fd, `[${process.hrtime.bigint()}, "${kind}", ${JSON.stringify(value)}]\n`)
let stall = 0
export const role = cfg.role

// A delivery; send(value) publishes the answer.
export function got (value, send) {
  if (role === 'A') return // it only asks
  log('dlv', value)
  if (stall && role === 'C') {
    const ms = stall * 1000
    stall = 0
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
  }
  if (role === 'B' && value[0] === 'q') publish('r' + value.slice(1), send)
}

export async function publish (value, send) {
  log('pub', value)
  try { await send(value) } catch (e) { log('fail', value); log('err', `${value}: ${e.message}`.slice(0, 160)) }
}

export function serve ({ send, reconnect, close }) {
  let warm = 0
  const lines = readline.createInterface({ input: process.stdin })
  lines.on('line', async line => {
    const [word, x, y, z] = line.split(' ')
    if (word === 'warm') publish(`w${role}${++warm}`, send)
    else if (word === 'stall') stall = Number(x)
    else if (word === 'reconnect') {
      log('note', 'reconnect')
      try { await reconnect() } catch (e) { log('err', 'reconnect ' + e.message) }
      log('note', 'reconnected')
    } else if (word === 'ask') {
      const first = Number(x); const count = Number(y); const gap = 1000 / Number(z); const start = performance.now()
      for (let n = 0; n < count; n++) {
        const wait = start + n * gap - performance.now()
        if (wait > 0) await new Promise(resolve => setTimeout(resolve, wait))
        await publish('q' + (first + n), send)
      }
      console.log('done')
    } else if (word === 'quit') {
      setTimeout(() => process.exit(0), 2000)
      try { await close?.() } catch {}
      process.exit(0)
    }
  })
  lines.on('close', () => process.exit(0))
  console.log('ready')
}
process.on('uncaughtException', e => { log('err', String(e.stack || e).slice(0, 400)) })
process.on('unhandledRejection', e => { log('err', String(e?.stack || e).slice(0, 400)) })
