// COUNT timers of SECONDS seconds in one process; says how many ended.
const [count, seconds] = process.argv.slice(2).map(Number);
let ended = 0;
for (let i = 0; i < count; i++) {
  setTimeout(() => {
    if (++ended === count) console.log(`${ended} slept`);
  }, seconds * 1000);
}
