// Before the first paint: says that scripts run, and sets the theme that the reader chose last time.
const root = document.documentElement;
root.classList.add("scripted");
try {
  const chosen = localStorage.getItem("kltune-theme");
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
} catch {
  // No storage here: the system's theme stands.
}
