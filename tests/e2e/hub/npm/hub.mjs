// SPDX-License-Identifier: Apache-2.0
// The hub's own client for JavaScript: node hub.mjs download|file|scan CACHE REPO [PATH]; prints JSON.
import { downloadFileToCacheDir, scanCacheDir, snapshotDownload } from '@huggingface/hub';

const [what, cacheDir, repo, path] = process.argv.slice(2);
const hubUrl = process.env.HF_ENDPOINT;
console.debug = () => {};
const asked = [];
const counted = (url, options) => {
  asked.push(String(url));
  return fetch(url, options);
};
let result;
if (what === 'download') result = await snapshotDownload({ repo, cacheDir, hubUrl, fetch: counted });
else if (what === 'file') result = await downloadFileToCacheDir({ repo, path, cacheDir, hubUrl, fetch: counted });
else if (what === 'commit') result = await downloadFileToCacheDir({ repo, path, revision: process.argv[6], cacheDir, hubUrl, fetch: counted });
else result = await scanCacheDir(cacheDir);
console.log(JSON.stringify({ result, asked }));
