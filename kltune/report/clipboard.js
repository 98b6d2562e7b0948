// Copy buttons: of a command, and of what to type.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea", { "aria-hidden": "true", style: "position:fixed;opacity:0" });
    area.value = text;
    (find("dialog[open]") || document.body).append(area);
    area.select();
    let done = false;
    try { done = document.execCommand("copy"); } catch { done = false; }
    area.remove();
    return done;
  }
}

function wireCopy(button, text) {
  const named = button.textContent;
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    button.textContent = (await copy(text())) ? "Copied" : "Select and copy by hand";
    button.focus();
    setTimeout(() => { button.textContent = named; }, 2000);
  });
}

function codeBlock(text) {
  const button = make("button", { type: "button", class: "copy" }, "Copy");
  wireCopy(button, () => text);
  return make("div", { class: "code" }, make("pre", { tabindex: "0" }, make("code", {}, text)), button);
}

for (const block of findAll(".code")) {
  const button = find(".copy", block);
  if (button) wireCopy(button, () => find("code", block).textContent);
}
for (const what of findAll(".what")) {
  const list = find(".type-in", what);
  const button = make("button", { type: "button", class: "copy quiet" }, "Copy these settings");
  wireCopy(button, () => findAll("div", list)
    .map((pair) => `${find("dt", pair).textContent}: ${find("dd", pair).textContent}`).join("\n"));
  list.after(button);
}
