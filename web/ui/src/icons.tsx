import type { ReactNode } from 'react';

const icon = (path: ReactNode) => (
  <svg viewBox="0 0 20 20" width="1em" height="1em" fill="none" stroke="currentColor" strokeWidth="1.6" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
    {path}
  </svg>
);

export const IconMenu = () => icon(<path d="M3 6h14M3 10h14M3 14h14" />);
export const IconPlus = () => icon(<path d="M10 4v12M4 10h12" />);
export const IconTrash = () => icon(<path d="M4 6h12M8 6V4h4v2M6 6l.7 10h6.600L14 6" />);
export const IconSend = () => icon(<path d="M10 16V4M5 9l5-5 5 5" />);
export const IconStop = () => (
  <svg viewBox="0 0 20 20" width="1em" height="1em" aria-hidden="true">
    <rect x="5" y="5" width="10" height="10" rx="2" fill="currentColor" />
  </svg>
);
export const IconPause = () => (
  <svg viewBox="0 0 20 20" width="1em" height="1em" aria-hidden="true">
    <path d="M5.5 5h3v10h-3zM11.500 5h3v10h-3z" fill="currentColor" />
  </svg>
);
export const IconHistory = () => icon(<path d="M4.2 10a5.8 5.8 0 1 1 1.8 4.200M4.200 14.800v-3.600M10 7v3.300l2.200 1.300" />);
export const IconBranch = () => icon(<path d="M6 6.300v7.400M14 8.300c0 3.200-3 3.700-7.500 4.500M7.800 4.500a1.800 1.800 0 1 1-3.600 0 1.800 1.800 0 0 1 3.600 0zM7.800 15.500a1.800 1.800 0 1 1-3.600 0 1.800 1.800 0 0 1 3.600 0zM15.800 6.500a1.800 1.800 0 1 1-3.600 0 1.800 1.800 0 0 1 3.600 0z" />);
export const IconRewind = () => icon(<path d="M9 5L4 10l5 5M16 5l-5 5 5 5" />);
export const IconPlay = () => icon(<path d="M7 5l8 5-8 5z" />);
export const IconEdit = () => icon(<path d="M4 16l.8-3.200L13 4.600l2.4 2.4-8.2 8.200z" />);
export const IconRedo = () => icon(<path d="M15.5 8A6 6 0 1 0 16 11M16 4v4h-4" />);
export const IconCopy = () => icon(<path d="M7 7h9v9H7zM4 13V4h9" />);
export const IconCheck = () => icon(<path d="M4 10.500l4 4 8-9" />);
export const IconCross = () => icon(<path d="M5 5l10 10M15 5L5 15" />);
export const IconDown = () => icon(<path d="M10 4v12M5 11l5 5 5-5" />);
export const IconAgent = () => icon(<path d="M4.5 8.500h11v7h-11zM10 8.500V5M8 12h.01M12 12h.01M10 4.500h.01" />);
export const IconOpen = () => icon(<path d="M11 4h5v5M16 4l-7 7M13 11.500V16H4V7h4.500" />);
export const IconChevron = () => icon(<path d="M8 5l5 5-5 5" />);

export const Logo = () => (
  <svg className="logo" viewBox="0 0 32 32" width="26" height="26" aria-hidden="true">
    <rect x="5" y="4" width="22" height="5" rx="2" fill="currentColor" />
    <rect x="5" y="23" width="22" height="5" rx="2" fill="currentColor" />
    <path d="M9 11.500h14M9 14.500h14M9 17.500h14M9 20.500h14" stroke="currentColor" strokeWidth="1.8" opacity=".6" />
  </svg>
);
