// Fetches the page's part again and again while somebody looks, and sends what an operator decides.
const $ = (id) => document.getElementById(id);
const { part: address, every } = document.body.dataset;
const KEY = "orders-ops-key";
let asked = null; // the button whose question is on the screen

function headers(more = {}) {
  const key = sessionStorage.getItem(KEY);
  return key ? { Authorization: `Bearer ${key}`, ...more } : more;
}

async function problemOf(answer) {
  const problem = await answer.json().catch(() => ({}));
  return problem.detail ?? `The service answered ${answer.status}.`;
}

function show(trouble) {
  if ($("trouble").textContent !== trouble) $("trouble").textContent = trouble;
  $("trouble").hidden = !trouble;
  $("part").classList.toggle("stale", Boolean(trouble));
}

async function refresh() {
  try {
    const answer = await fetch(address, { headers: headers(), signal: AbortSignal.timeout(10_000) });
    $("forget").hidden = !sessionStorage.getItem(KEY);
    if (answer.ok) {
      const fresh = document.createElement("main");
      fresh.innerHTML = await answer.text();
      tell(fresh);
      morphChildren($("part"), fresh);
      $("key").hidden = true;
      show("");
    } else if (answer.status === 401 || answer.status === 403) {
      $("key").hidden = false;
      $("part").replaceChildren();
      show(sessionStorage.getItem(KEY) ? await problemOf(answer) : "");
    } else {
      show(await problemOf(answer));
    }
  } catch {
    show(`No answer since ${new Date().toISOString().slice(11, 19)} UTC; what stands here may be old.`);
  }
}

// Says aloud what has changed among the few things that are watched.
function tell(fresh) {
  const watched = (root) => [...root.querySelectorAll("[data-watch]")].map((element) => element.dataset.watch);
  const before = watched($("part"));
  const news = before.length ? watched(fresh).filter((now) => !before.includes(now)) : [];
  if (news.length) $("news").textContent = news.join(", ");
}

// Makes the old tree like the fresh one and leaves alone what is equal: focus and selection stay where they are.
function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName || old.id !== fresh.id) return old.replaceWith(fresh);
  if (old.nodeType !== Node.ELEMENT_NODE) return void (old.data = fresh.data);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  const [olds, news] = [[...old.childNodes], [...fresh.childNodes]];
  news.forEach((node, place) => (place < olds.length ? morph(olds[place], node) : old.append(node)));
  olds.slice(news.length).forEach((node) => node.remove());
}

async function turn() {
  if (!document.hidden && !$("ask").open && $("key").hidden) await refresh();
  setTimeout(turn, every * 1000);
}

function ask(button) {
  const { says, title, meaning } = button.dataset;
  asked = button;
  $("ask-title").textContent = title;
  $("ask-meaning").textContent = meaning;
  $("yes").textContent = says;
  $("refusal").textContent = "";
  $("reason").value = "";
  $("ask").showModal();
  $("reason").focus();
}

async function act() {
  $("yes").disabled = true;
  try {
    const answer = await fetch(asked.dataset.act, {
      method: "POST",
      headers: headers({ "Content-Type": "application/json" }),
      body: JSON.stringify({ reason: $("reason").value }),
    });
    if (!answer.ok) return void ($("refusal").textContent = await problemOf(answer));
    $("ask").close();
    $("news").textContent = `Done: ${asked.dataset.title}`;
    await refresh();
  } catch {
    $("refusal").textContent = "No answer came. Look at the page before you try again: it may have been done.";
  } finally {
    $("yes").disabled = false;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act]");
  if (button) ask(button);
});
document.addEventListener("visibilitychange", () => document.hidden || refresh());
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  act();
});
$("ask").addEventListener("close", () => (document.getElementById(asked.id) ?? $("order")).focus());
$("no").addEventListener("click", () => $("ask").close());
$("find").addEventListener("submit", (event) => {
  event.preventDefault();
  location.assign($("find").dataset.orders + $("order").value);
});
$("key").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, $("secret").value.trim());
  $("secret").value = "";
  refresh();
});
$("forget").addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  refresh();
});
turn();
