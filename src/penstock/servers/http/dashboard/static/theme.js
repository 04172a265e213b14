// Loaded before anything is painted, so that a page never flashes in the wrong theme.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("penstock-theme"); } catch { /* storage is closed: the system's choice counts */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
