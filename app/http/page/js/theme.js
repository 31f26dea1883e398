// Colours told apart by every eye (Okabe and Ito's eight), and what a chart takes from the page.

export const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8a8f99"];

const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** Call `listener` whenever the reader changes between light and dark. */
export const onTheme = (listener) => dark.addEventListener("change", listener);

export function ink() {
  const style = getComputedStyle(document.documentElement);
  return {
    text: style.getPropertyValue("--ink").trim(),
    soft: style.getPropertyValue("--soft").trim(),
    line: style.getPropertyValue("--line").trim(),
    card: style.getPropertyValue("--card").trim(),
    accent: style.getPropertyValue("--accent").trim(),
  };
}
