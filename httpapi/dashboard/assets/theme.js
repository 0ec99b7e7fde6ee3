// Before anything is drawn, so that the page does not flash in the other colours.
"use strict";
try {
	const theme = localStorage.getItem("jatah-theme");
	if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch { /* without storage: as the system */ }
