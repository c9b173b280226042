CREATE TABLE meta (
  version integer NOT NULL,
  identity text NOT NULL DEFAULT '',
  losses bigint NOT NULL DEFAULT 0
);
INSERT INTO meta (version) VALUES (1);
CREATE SEQUENCE session_sid;
CREATE TABLE session (
  id text COLLATE "C" PRIMARY KEY,
  sid bigint NOT NULL UNIQUE DEFAULT nextval('session_sid'),
  alive boolean NOT NULL DEFAULT false,
  seq bigint NOT NULL DEFAULT 0,
  incarnation bigint NOT NULL DEFAULT 0,
  trace_floor bigint NOT NULL DEFAULT 0,
  floor bigint NOT NULL DEFAULT 0,
  epoch bigint NOT NULL DEFAULT 0,
  status text COLLATE "C" NOT NULL DEFAULT '',
  due bigint NOT NULL DEFAULT 0,
  last_command bigint NOT NULL DEFAULT 0,
  pending boolean NOT NULL DEFAULT false,
  hidden boolean NOT NULL DEFAULT false,
  agent text COLLATE "C" NOT NULL DEFAULT '',
  principal text COLLATE "C" NOT NULL DEFAULT '',
  title text COLLATE "C" NOT NULL DEFAULT '',
  updated bigint NOT NULL DEFAULT 0,
  listed bigint,
  bytes bigint NOT NULL DEFAULT 0,
  lease_claim text COLLATE "C" NOT NULL DEFAULT '',
  lease_owner text COLLATE "C" NOT NULL DEFAULT '',
  lease_ttl bigint NOT NULL DEFAULT 0,
  lease_expires bigint NOT NULL DEFAULT 0,
  ready bigint,
  trace_trimmed bigint NOT NULL DEFAULT 0,
  trimmed bigint NOT NULL DEFAULT 0,
  version bigint NOT NULL DEFAULT 0,
  writers integer NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE INDEX session_ready ON session (ready) WHERE ready IS NOT NULL;
CREATE INDEX session_claim ON session (lease_claim) WHERE lease_claim <> '';
CREATE INDEX session_listed ON session (listed) WHERE listed IS NOT NULL;
CREATE INDEX session_status ON session (status, listed) WHERE listed IS NOT NULL;
CREATE INDEX session_principal ON session (principal, listed) WHERE principal <> '' AND listed IS NOT NULL;
CREATE TABLE record (
  sid bigint NOT NULL,
  seq bigint NOT NULL,
  type text COLLATE "C" NOT NULL,
  agent text COLLATE "C" NOT NULL,
  time bigint NOT NULL,
  trace smallint NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (sid, seq)
);
CREATE INDEX record_kept ON record (sid, seq) WHERE trace = 0;
CREATE TABLE writer (
  sid bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  ordinal bigint NOT NULL,
  first bigint NOT NULL,
  last bigint NOT NULL,
  PRIMARY KEY (sid, name)
) WITH (fillfactor = 50);
CREATE TABLE fold (
  sid bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  incarnation bigint NOT NULL,
  seq bigint NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (sid, name)
);
CREATE TABLE blob (
  sid bigint NOT NULL,
  hash text COLLATE "C" NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (sid, hash)
);
CREATE TABLE garbage (sid bigint PRIMARY KEY);
CREATE TABLE probe (at timestamptz NOT NULL);
