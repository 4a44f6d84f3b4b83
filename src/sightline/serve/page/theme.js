// Runs before the page is painted, so that it never flashes in the other colours.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const kept = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const apply = () => {
    root.dataset.theme = kept() ?? (dark.matches ? "dark" : "light");
    document.getElementById("theme")?.setAttribute("aria-pressed", String(root.dataset.theme === "dark"));
  };
  dark.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme")?.addEventListener("click", () => {
      try { localStorage.setItem("theme", root.dataset.theme === "dark" ? "light" : "dark"); } catch { /* private */ }
      apply();
    });
  });
  apply();
})();
