// The one script that is no module: it runs before the first paint, so that a chosen theme does not flash.
try {
  const theme = JSON.parse(localStorage.getItem("foredraft.settings") || "{}").theme;
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be off or hold something else; the system's theme it is then.
}
