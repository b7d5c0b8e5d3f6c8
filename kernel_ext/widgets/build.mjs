// Bundles the widget: `npm ci && node build.mjs [output]`. The result is committed, so users need no Node.
import { build } from "esbuild";

await build({
  entryPoints: [new URL("index.js", import.meta.url).pathname],
  outfile: process.argv[2] ?? new URL("../static/report.js", import.meta.url).pathname,
  bundle: true,
  format: "esm",
  target: "es2021",
  charset: "utf8",
  minify: false,
});
