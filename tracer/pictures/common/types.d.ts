// What the scripts share, for the type checker and for whoever writes a new picture. Nothing of it reaches a browser.

/** Layer and index of a head. */
type Head = [layer: number, head: number];
/** Row (query) and column (key) of a pattern, and where there are several its panel. */
type Cell = number[];
type Mode = "light" | "dark";
type Colour = number[];
type Shaped = { shape: number[] };
/** A payload's header, as tracer.pictures.payload packs it; each picture adds its own fields. */
type Header = { version?: string; arrays: { name: string; dtype: string; shape: number[] }[]; [field: string]: any };
/** A measure as it is shown. */
type Scale = {
  label: string;
  unit: string;
  lo: number;
  hi: number;
  digits: number;
  chance?: number | null;
  mark?: string;
  marks?: [name: string, value: number][];
  palette?: string;
};
/** What changes often: what is chosen, and whatever its picture is told. `seen`: when the host heard the last pick. */
type Cue = { value?: any; seen?: number; scale?: Scale; version?: string; head?: Head; [field: string]: any };
type Theme = {
  page: Colour;
  text: Colour;
  muted: Colour;
  line: Colour;
  faint: Colour;
  sans: string;
  mono: string;
  mode: Mode;
};
/** A ramp of 256 colours: as bytes, as styles, and the ink that is legible on each. */
type Ramp = { table: Uint8ClampedArray; at: (share: number) => Colour; tints: string[]; inks: string[]; css: string };
/** A step of training that a scrubber plays: every head's pattern as bytes of the root, pooled by `factors`. */
type Frame = {
  index: number;
  step: number;
  version: string;
  thumbs: Uint8Array;
  layers: number;
  heads: number;
  rows: number;
  cols: number;
  n: number[];
  factors: number[];
  causal: boolean[];
  value: (measure: string, layer: number, head: number) => number;
  /** The code of a head's role, as in `atlas.Roles`. */
  role: (layer: number, head: number) => number;
  /** The same of the role that it had before and has no more. */
  lost: (layer: number, head: number) => number;
  guesses: Guesses | null;
};
/** What a model would say next, the likeliest first; `before` and `was` with every head on, where some are off. */
type Guesses = {
  words: string[];
  shares: (number | null)[];
  before?: (number | null)[] | null;
  loss: number | null;
  was?: number | null;
  quiet?: boolean;
};
/** Rows for a reader or a file; built when they are asked for. */
type Table = { columns: string[]; rows: () => any[][] };
/** What a picture does; only `draw` runs when the theme, the size or the cue changes. */
type View = {
  load: (header: any, arrays: any) => void;
  draw: () => void;
  end?: () => void;
  svg?: () => string;
  png?: () => Promise<Blob>;
};
/** A picture on the page. */
type Part = {
  root: HTMLElement;
  key: string;
  cue?: Cue;
  theme?: Theme;
  view?: View;
  table?: Table;
  version?: string;
  /** Draw with the next frame of the screen. */
  draw: () => void;
  /** Tell the host what the reader chose, after `wait` milliseconds without another choice. */
  send: (value: any, wait?: number) => void;
  [field: string]: any;
};
/** What a host calls the default export of a part with. */
type HostArguments = {
  data?: any;
  parentElement: any;
  setStateValue?: (name: string, value: any) => void;
  setTriggerValue?: (name: string, value: any) => void;
};
type Topic = { value: any; listeners: Set<(value: any) => void> };
type Hub = {
  cues?: Map<string, Cue>;
  parts?: Map<string, Set<(cue: Cue) => void>>;
  topics?: Map<string, Topic>;
  waiting?: Set<Part>;
  reels?: Map<string, Map<number, Uint8Array>>;
  saver?: (part: Part) => void;
  press?: ((canvas: HTMLCanvasElement, width: number, height: number) => CanvasRenderingContext2D) | null;
  module?: PromiseWithResolvers<(args: HostArguments) => any>;
  opening?: boolean;
  address?: boolean;
  landing?: boolean;
  rules?: boolean;
  asked?: string | null;
  about?: Record<string, any>;
};

declare var manyeyes: Hub | undefined;
/** Written by tracer.pictures.assets in front of the shared scripts. */
declare const PALETTES: Record<string, Record<Mode, string[]>>;
declare const VIEWS: Record<string, (args?: HostArguments) => any>;
declare const STYLES: Record<string, string> | null;

interface HTMLDetailsElement {
  /** What a file of the picture holds. */
  table?: Table;
}
