// A page that is served while the sweep runs asks every few seconds whether there is a newer one.
const POLL_MS = 5000;
const SLOWEST_MS = 60000;

function watch() {
  const mark = find(".live");
  const clock = () => new Date().toLocaleTimeString("en-GB");
  let seen = memory.read("sessionStorage", "kltune-version");
  let misses = 0;
  const say = (text, state) => { mark.textContent = text; mark.dataset.state = state; };

  function reload(version) {
    memory.write("sessionStorage", "kltune-version", version);
    location.reload(); // the browser keeps the place, the address keeps the open trial
  }

  async function ask() {
    if (document.hidden) return setTimeout(ask, POLL_MS);
    try {
      const answer = await fetch("version", { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      const { version, is_final: isFinal } = await answer.json();
      misses = 0;
      if (seen !== null && version !== seen) return reload(version);
      seen = version;
      if (isFinal) return say("The sweep has ended; this is its last state.", "final");
      say(`Live, updated ${updated}`, "live");
    } catch {
      misses += 1;
      say(`The server has gone. This is the state of ${updated}.`, "gone");
    }
    return setTimeout(ask, Math.min(SLOWEST_MS, POLL_MS * 2 ** misses / (misses ? 2 : 1)));
  }

  const updated = clock();
  say(`Live, updated ${updated}`, "live");
  ask();
}

if (document.body.hasAttribute("data-live")) watch();
