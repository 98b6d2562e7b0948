// Light, dark or the system's: the button goes round the three; who draws is told.
const wantsDark = matchMedia("(prefers-color-scheme: dark)");
const themeButton = find("#theme");
const onTheme = [];

function isDark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : wantsDark.matches;
}

function colours() {
  const style = getComputedStyle(root);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  return { ink: read("ink"), soft: read("soft"), paper: read("paper"), line: read("line"), panel: read("panel") };
}

function showTheme() {
  const name = root.dataset.theme || "system";
  themeButton.textContent = `Theme: ${name}`;
  themeButton.title = "Next: the other of light and dark, then the system's";
}

function nextTheme() {
  const system = wantsDark.matches ? "dark" : "light";
  const other = wantsDark.matches ? "light" : "dark";
  const order = [undefined, other, system];
  return order[(order.indexOf(root.dataset.theme) + 1) % 3];
}

themeButton.addEventListener("click", () => {
  const next = nextTheme();
  if (next) root.dataset.theme = next; else delete root.dataset.theme;
  memory.write("localStorage", "kltune-theme", next || null);
  showTheme();
  for (const redraw of onTheme) redraw();
});
wantsDark.addEventListener("change", () => {
  if (!root.dataset.theme) for (const redraw of onTheme) redraw();
});
showTheme();
