// Starts what a page needs. Each module finds its own elements and does nothing where there are none.
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
