// A picture and a paper, made here: real ones, because what a file is, is told by its bytes.

import { createHash } from 'node:crypto';
import { deflateSync } from 'node:zlib';

const CRC_TABLE = Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit += 1) crc = crc & 1 ? 0xedb88320 ^ (crc >>> 1) : crc >>> 1;
  return crc;
});

function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = CRC_TABLE[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

function uint32(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

function chunk(type, data) {
  const named = Buffer.concat([Buffer.from(type), data]);
  return Buffer.concat([uint32(data.length), named, uint32(crc32(named))]);
}

/** A square of noise, `3 * side * side` bytes and a few more; another one for every `name`. */
export function picture(side, name) {
  const row = side * 3 + 1;
  const pixels = Buffer.alloc(row * side);
  let noise = createHash('sha256').update(name).digest().readUInt32BE() | 1;
  for (let at = 0; at < pixels.length; at += 1) {
    noise = (Math.imul(noise, 1664525) + 1013904223) >>> 0;
    // Every row begins with the number of its filter: none.
    pixels[at] = at % row === 0 ? 0 : noise >>> 24;
  }
  const EIGHT_BIT_RGB = Buffer.from([8, 2, 0, 0, 0]);
  return Buffer.concat([
    Buffer.from('89504e470d0a1a0a', 'hex'),
    chunk('IHDR', Buffer.concat([uint32(side), uint32(side), EIGHT_BIT_RGB])),
    chunk('IDAT', deflateSync(pixels, { level: 0 })),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

/** A PDF of one page with these words on it, which have no parentheses. */
export function paper(words) {
  const drawn = `BT /F1 18 Tf 40 700 Td (${words}) Tj ET`;
  const objects = [
    '<< /Type /Catalog /Pages 2 0 R >>',
    '<< /Type /Pages /Kids [3 0 R] /Count 1 >>',
    '<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>',
    `<< /Length ${drawn.length} >>\nstream\n${drawn}\nendstream`,
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>',
  ];
  let text = '%PDF-1.4\n';
  const places = objects.map((object, at) => {
    const place = text.length;
    text += `${at + 1} 0 obj\n${object}\nendobj\n`;
    return place;
  });
  const table = text.length;
  const rows = places.map((place) => `${String(place).padStart(10, '0')} 00000 n \n`);
  text += `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${rows.join('')}`;
  text += `trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${table}\n%%EOF\n`;
  return Buffer.from(text, 'latin1');
}

/** Where the server keeps these bytes. */
export const blobOf = (bytes) => `/v1/blobs/${createHash('sha256').update(bytes).digest('hex')}`;

/** The bytes as an address of their own. */
export const dataUrl = (type, bytes) => `data:${type};base64,${bytes.toString('base64')}`;
