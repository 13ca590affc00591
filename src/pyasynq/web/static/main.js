// Starts all modules. Each finds its own elements, and does nothing on a page without them.
import { startDialogs } from "./dialog.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startPalette } from "./palette.js";
import { startQuery } from "./query.js";
import { startSelection } from "./table.js";
import { startTimes } from "./times.js";

startTimes();
startSelection();
startLive();
startDialogs();
startQuery();
startPalette();
startKeys();
